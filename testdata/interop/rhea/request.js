// request.js sends requests with a dynamic reply address, and prints each answer.
//
//   --url U  --to NAME  --count N  --sizes 100
'use strict';
const { rhea, flags, emit, connect, close, describe, body } = require('./lib');

const f = flags({ to: '', count: 1, sizes: '100' });
const sizes = f.sizes.split(',').map(Number);
const connection = connect(f.url);
let sender, receiver, sent = 0, answered = 0;

connection.on('connection_open', () => {
    receiver = connection.open_receiver({ source: { dynamic: true }, credit_window: 20 });
});
connection.on('receiver_open', () => {
    emit('attached', { address: receiver.source.address });
    sender = connection.open_sender({ target: { address: f.to } });
});
connection.on('sendable', () => {
    while (sent < f.count && sender.sendable()) {
        const n = sent++;
        sender.send({ to: f.to, message_id: `r-${n}`, correlation_id: `r-${n}`, reply_to: receiver.source.address, application_properties: { n },
            body: rhea.message.data_section(body(n, sizes[n % sizes.length])) });
    }
});
connection.on('message', (context) => {
    emit('reply', describe(context));
    if (++answered >= f.count) {
        emit('done', { received: answered });
        close(connection);
    }
});
for (const state of ['rejected', 'released', 'modified']) {
    connection.on(state, (context) => {
        const e = context.delivery.remote_state && context.delivery.remote_state.error;
        emit('outcome', { state, condition: e && e.condition || undefined, description: e && e.description || undefined });
    });
}
