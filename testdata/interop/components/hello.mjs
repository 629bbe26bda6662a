// Two components in one program: a frontend, which asks a backend whom to greet. node hello.mjs BROKER [CA-FILE]
import { readFileSync } from 'node:fs'
import { connect } from './component.mjs'

const [broker = '127.0.0.1:6060', ca] = process.argv.slice(2)
const of = (name, hash, handle) => connect({
  broker, ca: ca && readFileSync(ca), platform: 'lab', app: 'hello', name, hash, token: name + '-token', handle,
  ended: err => { console.log(`${name}: ${err.message}`); process.exit(1) }
})

await of('backend', 'bbbbbbb', ({ env }) => ({ content: env.who }))
await of('frontend', 'aaaaaaa', async (request, call) => {
  if (request.values.queryParam?.fail) throw new Error('as you wish')
  const { content } = await call(request, request.values.queryParam?.of?.[0] ?? 'backend')
  return { status: 201, header: { 'X-By': ['node'] }, contentType: 'text/plain', content: `Hello ${content}!\n` }
})
console.log('connected')
