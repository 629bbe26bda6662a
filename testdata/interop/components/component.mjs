// How a component of the broker is written in Node: connect registers it, and gives it to call others with.
import { randomUUID } from 'node:crypto'
import { fileURLToPath } from 'node:url'
import grpc from '@grpc/grpc-js'
import loader from '@grpc/proto-loader'

// The project's own description of the wire; a component of yours has a copy of it.
const proto = fileURLToPath(new URL('../../../internal/components/proto/broker.proto', import.meta.url))
const { Broker } = grpc.loadPackageDefinition(loader.loadSync(proto, { keepCase: true, longs: String, enums: String })).kubefox.proto.v1

// The values of an event's maps are JSON text.
const read = map => Object.fromEntries(Object.entries(map ?? {}).map(([k, v]) => [k, v.length ? JSON.parse(v) : null]))
const write = map => Object.fromEntries(Object.entries(map ?? {}).map(([k, v]) => [k, Buffer.from(JSON.stringify(v))]))

// connect registers a component and gives { call, close }, when the broker has answered.
//
// handle(request, call) answers a request, { route, params, values, env, contentType, content, event }, with { status, header, contentType, content };
// what it throws becomes an error event. call(request, name, { values, contentType, content }) asks another component of the deployment.
// routes, a list of { id, rule }, are used where the deployment gives the component none. ended is called when the stream has ended: connect again.
export function connect ({ broker, ca, platform, app, name, hash, token, routes, handle, ended = () => {} }) {
  const id = randomUUID().replaceAll('-', '').slice(0, 10)
  const self = { type: 'KubeFox', app, name, hash, id }
  const metadata = new grpc.Metadata()
  for (const [k, v] of Object.entries({ id, hash, app, platform, token, component: name, type: self.type })) metadata.set(k, v)
  const client = new Broker(broker, ca ? grpc.credentials.createSsl(ca) : grpc.credentials.createInsecure(), { 'grpc.max_receive_message_length': 8 << 20 })
  const stream = client.Subscribe(metadata)
  const waiting = new Map() // what is called when the answer to a request comes, by the request's id

  const send = event => stream.write({ id: randomUUID(), create_time: String(Date.now() * 1e6), source: self, ...event })
  const request = event => new Promise((resolve, reject) => {
    const id = randomUUID()
    waiting.set(id, { resolve, reject })
    send({ id, category: 'REQUEST', ...event })
  })
  const call = async (from, name, { values, contentType, content } = {}) => {
    const { id, context, ttl, at } = from.event
    const left = BigInt(ttl) - (process.hrtime.bigint() - at) // the life of the request is that of what it leads to
    const e = await request({
      parent_id: id, type: 'io.kubefox.kubefox', context, ttl: String(left), target: { type: 'KubeFox', name }, values: write(values), content_type: contentType, content
    })
    return { values: read(e.values), contentType: e.content_type, content: e.content }
  }

  async function answer ({ event, route_id: route, env }) {
    event.at = process.hrtime.bigint()
    const back = { parent_id: event.id, type: event.type, category: 'RESPONSE', context: event.context, target: event.source, ttl: event.ttl }
    try {
      const r = await handle({
        route: Number(route), params: read(event.params), values: read(event.values), env: read(env), contentType: event.content_type, content: event.content, event
      }, call)
      send({ ...back, values: write({ statusCode: r.status ?? 200, header: r.header ?? {} }), content_type: r.contentType, content: Buffer.from(r.content ?? '') })
    } catch (err) {
      const failure = err.failure ?? { grpcCode: 2, httpCode: 500, msg: 'unexpected error', cause: err.message }
      send({ ...back, type: 'io.kubefox.error', content_type: 'application/json', content: Buffer.from(JSON.stringify(failure)) })
    }
  }

  stream.on('data', matched => {
    const { event } = matched
    if (event.category === 'REQUEST') return answer(matched)
    const w = waiting.get(event.parent_id)
    waiting.delete(event.parent_id)
    if (event.type !== 'io.kubefox.error') return w?.resolve(event)
    const failure = JSON.parse(event.content)
    w?.reject(Object.assign(new Error([failure.msg, failure.cause].filter(Boolean).join(': ')), { failure }))
  })
  const end = err => {
    for (const w of waiting.values()) w.reject(err)
    waiting.clear()
    client.close()
    ended(err)
  }
  stream.on('error', end)
  stream.on('end', () => end(new Error('the stream has ended')))

  // The first event is the registration.
  return request({
    type: 'io.kubefox.register', ttl: '5000000000', context: { platform }, content_type: 'application/json',
    content: Buffer.from(JSON.stringify({ type: self.type, hash: '', routes }))
  }).then(() => ({ call, close: () => stream.end() }))
}
