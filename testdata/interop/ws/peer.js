// A foreign WebSocket peer (the library "ws"): `client URL` connects to an echo and checks it, `server` is an echo that says its port.
'use strict';
const { WebSocket, WebSocketServer } = require('ws');

const messages = [
  'text', '', '€ and 𝄞', 'x'.repeat(125), 'x'.repeat(126), 'x'.repeat(65535), 'x'.repeat(65536), 'long'.repeat(100000),
  Buffer.from([0, 255, 128]), Buffer.alloc(0), Buffer.alloc(300000, 7),
];

function fail(text) {
  console.error(text);
  process.exit(1);
}

function client(url) {
  const ws = new WebSocket(url, { perMessageDeflate: true });
  let got = 0;
  let ponged = 0;
  ws.on('error', (e) => fail(`error ${e.message}`));
  ws.on('pong', (data) => { if (String(data) === 'hello') ponged++; });
  ws.on('open', () => {
    if (ws.extensions !== '') fail(`extensions ${ws.extensions}`);
    for (const m of messages) ws.send(m);
    ws.ping('hello');
    // One in fragments, with a ping between.
    ws.send('a', { fin: false });
    ws.ping('hello');
    ws.send('b', { fin: true });
  });
  ws.on('message', (data, isBinary) => {
    const want = got < messages.length ? messages[got] : 'ab';
    if (isBinary !== Buffer.isBuffer(want) || !data.equals(Buffer.from(want))) fail(`message ${got} differs: ${data.length} bytes`);
    if (++got > messages.length) {
      if (ponged === 0) fail('no pong');
      ws.close(4000, 'bye');
    }
  });
  ws.on('close', (code, reason) => {
    if (code !== 4000 || got !== messages.length + 1) fail(`closed with ${code} ${reason} after ${got}`);
    console.log('done');
  });
}

function server() {
  const wss = new WebSocketServer({ host: '127.0.0.1', port: 0, handleProtocols: (offered) => (offered.has('echo') ? 'echo' : false) });
  wss.on('listening', () => console.log(wss.address().port));
  wss.on('connection', (ws) => {
    ws.on('message', (data, isBinary) => {
      if (String(data) === 'close') return ws.close(1001, 'as you like');
      ws.ping('are you there?');
      ws.send(data, { binary: isBinary });
    });
    ws.on('pong', (data) => ws.send(`pong ${data}`));
    ws.on('close', () => wss.close());
  });
}

const [what, url] = process.argv.slice(2);
if (what === 'client') client(url);
else server();
