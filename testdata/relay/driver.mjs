#!/usr/bin/env node
// Runs conformance cases against a Relay Broker WebSocket. See README.md.
import { existsSync, readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Mismatch } from './lib/match.mjs';
import { Failure, Run, Skip } from './lib/steps.mjs';
import { parseYaml } from './lib/yaml-lite.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const { values: arg } = parseArgs({
  options: {
    url: { type: 'string', default: 'ws://127.0.0.1:8080' },
    keys: { type: 'string', default: join(here, 'keys.json') },
    cases: { type: 'string', multiple: true },
    only: { type: 'string' },
    skip: { type: 'string' },
    slow: { type: 'boolean', default: false },
    busy: { type: 'string', default: '30000' },
    within: { type: 'string', default: '3000' },
    quiet: { type: 'string', default: '300' },
    chunk: { type: 'string', default: '65536' },
    'fill-limit-mb': { type: 'string', default: '400' },
    'fault-op': { type: 'string' },
    scan: { type: 'string', multiple: true },
    json: { type: 'string' },
    trace: { type: 'boolean', default: false },
    strict: { type: 'boolean', default: false },
    list: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
if (arg.help) {
  console.log(readFileSync(join(here, 'README.md'), 'utf8'));
  process.exit(0);
}

const caseFiles = arg.cases ?? [join(here, 'cases.yaml')];
const levels = ['must', 'should', 'info'];
const cases = caseFiles.flatMap((f) => parseYaml(readFileSync(f, 'utf8')).cases);
const ids = new Set();
for (const c of cases) {
  if (!c.id || ids.has(c.id)) throw new Error(`case id missing or given twice: ${c.id}`);
  if (!levels.includes(c.level)) throw new Error(`${c.id}: level must be one of ${levels.join(', ')}`);
  if (!Array.isArray(c.steps)) throw new Error(`${c.id}: no steps`);
  ids.add(c.id);
}
if (arg.list) {
  for (const c of cases) console.log(`${c.id}\t${c.level}${c.slow ? '\tslow' : ''}\t${c.title}`);
  process.exit(0);
}

const keyFile = JSON.parse(readFileSync(arg.keys, 'utf8'));
const runId = Math.random().toString(36).slice(2, 8);
const options = {
  url: arg.url.replace(/\/$/, ''),
  keys: keyFile.keys,
  domain: keyFile.domain,
  runId,
  canary: `canary-${runId}-${Math.random().toString(36).slice(2)}`,
  busy: Number(arg.busy),
  within: Number(arg.within),
  quiet: Number(arg.quiet),
  chunk: Number(arg.chunk),
  fillLimit: Number(arg['fill-limit-mb']) * 1e6,
  faultOp: arg['fault-op'] ? JSON.parse(arg['fault-op']) : null,
};

async function runCase(c) {
  if (c.slow && !arg.slow) return { result: 'skip', why: 'slow (give --slow)' };
  const run = new Run(options, c.id);
  let outcome = { result: 'pass' };
  try {
    for (const [name, key] of Object.entries(c.conns ?? {})) await run.open(name, key);
    for (const step of [...(c.setup ?? []), ...c.steps]) await run.step(step);
  } catch (e) {
    if (e instanceof Skip) outcome = { result: 'skip', why: e.message };
    else if (e instanceof Failure || e instanceof Mismatch) outcome = { result: 'fail', why: e.message };
    else outcome = { result: 'fail', why: `driver or connection error: ${e.stack ?? e}` };
  }
  const faults = await run.finish();
  if (faults.length && outcome.result !== 'skip') outcome = { result: 'fail', why: [outcome.why, ...faults].filter(Boolean).join('; ') };
  return { ...outcome, log: run.log };
}

function* files(path) {
  if (!existsSync(path)) return;
  if (statSync(path).isDirectory()) { for (const n of readdirSync(path)) yield* files(join(path, n)); } else yield path;
}

const picked = cases.filter((c) => (!arg.only || new RegExp(arg.only).test(c.id)) && !(arg.skip && new RegExp(arg.skip).test(c.id)));
const report = [];
for (const c of picked) {
  const start = Date.now();
  const { log, ...outcome } = await runCase(c);
  const entry = { id: c.id, level: c.level, title: c.title, ...outcome, ms: Date.now() - start };
  report.push(entry);
  const mark = { pass: 'ok  ', fail: c.level === 'must' || arg.strict ? 'FAIL' : 'weak', skip: 'skip' }[entry.result];
  console.log(`${mark} ${c.id.padEnd(7)} ${c.level.padEnd(6)} ${String(entry.ms).padStart(6)} ms  ${c.title}${entry.why ? `\n         ${entry.why}` : ''}`);
  if (arg.trace && entry.result === 'fail') console.log(log.slice(-60).map((l) => `         | ${l}`).join('\n'));
}

if (arg.scan) {
  const hits = arg.scan.flatMap((p) => [...files(p)]).filter((f) => readFileSync(f).includes(options.canary));
  const entry = { id: 'SCAN', level: 'must', title: 'no file given to --scan holds the data that was sent', result: hits.length ? 'fail' : 'pass', why: hits.length ? `found in ${hits.join(', ')}` : undefined, ms: 0 };
  report.push(entry);
  console.log(`${hits.length ? 'FAIL' : 'ok  '} SCAN    must              ${entry.title}${entry.why ? `\n         ${entry.why}` : ''}`);
}

const count = (f) => report.filter(f).length;
const summary = Object.fromEntries(levels.map((l) => [l, {
  pass: count((e) => e.level === l && e.result === 'pass'),
  fail: count((e) => e.level === l && e.result === 'fail'),
  skip: count((e) => e.level === l && e.result === 'skip'),
}]));
console.log(levels.map((l) => `${l}: ${summary[l].pass} passed, ${summary[l].fail} failed, ${summary[l].skip} skipped`).join('\n'));
if (arg.json) writeFileSync(arg.json, JSON.stringify({ url: options.url, when: new Date().toISOString(), summary, cases: report }, null, 1));
const failed = summary.must.fail + (arg.strict ? summary.should.fail : 0);
process.exit(failed ? 1 : 0);
