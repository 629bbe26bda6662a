// storm.js is many clients, each with a connection of its own that comes back: it sends to an address on which it receives, one message
// at a time. What was accepted has been received by itself, so what is missing was lost.
//
//   --url U  --name PREFIX (of addresses)  --count N (clients)
//
// Each second it tells: connects (ever), fresh (clients with a message accepted since they came back), accepted, lost.
'use strict';
const { rhea, flags, emit, login } = require('./lib');

const f = flags({ name: 'storm', count: 1 });
const sum = { connects: 0, accepted: 0, lost: 0 };
const fresh = new Set();

function start(i) {
    const address = `${f.name}/${i}`;
    const received = new Set(), sent = new Map();
    let n = 0, sender;
    const container = rhea.create_container({ id: `${f.name}-${i}`, autoaccept: false });
    const send = () => {
        if (!sender || !sender.sendable() || sent.size) return;
        const id = `${n++}`;
        sent.set(sender.send({ message_id: id, to: address, body: id }), id);
    };
    container.on('connection_open', (context) => {
        sum.connects++;
        sent.clear(); // their outcomes died with the connection
        if (!sender) {
            context.connection.open_receiver({ source: address, credit_window: 10 });
            sender = context.connection.open_sender(address);
        }
    });
    container.on('disconnected', () => fresh.delete(i));
    container.on('message', (context) => {
        received.add(context.message.message_id);
        context.delivery.accept();
    });
    container.on('accepted', (context) => {
        const id = sent.get(context.delivery);
        if (id === undefined) return;
        sent.delete(context.delivery);
        sum.accepted++;
        if (!received.delete(id)) sum.lost++;
        fresh.add(i);
    });
    for (const state of ['released', 'rejected', 'modified']) container.on(state, (context) => sent.delete(context.delivery));
    for (const where of ['connection', 'session', 'sender', 'receiver']) container.on(where + '_error', () => {});
    container.on('error', () => {});
    setInterval(send, 200);
    container.connect(Object.assign({ initial_reconnect_delay: 20, max_reconnect_delay: 1000 }, login(f.url)));
}

for (let i = 0; i < f.count; i++) start(i);
setInterval(() => emit('state', Object.assign({ fresh: fresh.size }, sum)), 1000);
process.stdin.on('end', () => process.exit(0)).resume();
