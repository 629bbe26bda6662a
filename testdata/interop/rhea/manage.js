// manage.js makes AMQP Management requests. Each line of standard input is one, as JSON; each answer is an event.
//
//   {"id": 1, "operation": "ADD", "type": "table", "name": "main", "properties": {}, "body": {"pattern": "X", "address": "amqp://h:1"}}
//
// --url U
'use strict';
const readline = require('readline');
const { flags, emit, connect, close, plain } = require('./lib');

const f = flags({});
const connection = connect(f.url);
let sender, receiver;

connection.on('connection_open', () => {
    receiver = connection.open_receiver({ source: { dynamic: true }, credit_window: 100 });
});
connection.on('receiver_open', () => {
    sender = connection.open_sender('$management');
});
connection.once('sendable', () => {
    emit('ready', { address: receiver.source.address });
    const lines = readline.createInterface({ input: process.stdin });
    lines.on('line', (line) => {
        const q = JSON.parse(line);
        const properties = Object.assign({ operation: q.operation }, q.properties);
        for (const key of ['type', 'name', 'identity']) if (q[key] !== undefined) properties[key] = q[key];
        sender.send({ to: '$management', message_id: String(q.id), correlation_id: String(q.id), reply_to: receiver.source.address,
            application_properties: properties, body: q.body || {} });
    });
    lines.on('close', () => close(connection));
});
connection.on('message', (context) => {
    const m = context.message, p = m.application_properties || {};
    emit('answer', { id: m.correlation_id, status: p.statusCode, description: p.statusDescription, revision: plain(p.revision), body: plain(m.body) });
});
for (const state of ['rejected', 'released', 'modified']) {
    connection.on(state, (context) => {
        const e = context.delivery.remote_state && context.delivery.remote_state.error;
        emit('error', { where: 'request', state, condition: e && e.condition, description: e && e.description });
    });
}
