// serve.js is a receiver that listens: it takes any link and prints each message.
//
//   --port P (0: a free one)  --window N  --outcome accept|release|reject|modify|none  --echo (answer each to its reply-to)  --quiet
'use strict';
const { rhea, flags, emit, describe, bytesOf } = require('./lib');

const f = flags({ port: 0, window: 100, outcome: 'accept', echo: false, quiet: false });
const container = rhea.create_container({ id: 'rhea-serve-' + process.pid, autoaccept: false });
container.sasl_server_mechanisms.enable_anonymous();

container.on('connection_open', (context) => emit('connection', { container: context.connection.container_id }));
container.on('receiver_open', (context) => {
    const r = context.receiver;
    const target = r.remote.attach.target;
    r.set_target(target && target.address ? { address: target.address } : {});
    r.add_credit(f.window);
    emit('attached', { link: r.name, address: target && target.address || null });
});
container.on('sender_open', (context) => {
    context.sender.set_source({ address: context.sender.remote.attach.source.address });
});
container.on('message', (context) => {
    const d = context.delivery, m = context.message;
    if (!f.quiet) emit('message', describe(context));
    if (f.echo && m.reply_to) {
        const c = context.connection;
        c.repliers = c.repliers || new Map();
        if (!c.repliers.has(m.reply_to)) c.repliers.set(m.reply_to, c.open_sender({ target: { address: m.reply_to } }));
        c.repliers.get(m.reply_to).send({ to: m.reply_to, correlation_id: m.correlation_id === undefined ? m.message_id : m.correlation_id,
            body: rhea.message.data_section(bytesOf(m) || Buffer.alloc(0)) });
    }
    switch (f.outcome) {
    case 'accept': d.accept(); break;
    case 'release': d.release({}); break;
    case 'reject': d.reject({ condition: 'amqp:precondition-failed', description: 'as the test asked' }); break;
    case 'modify': d.modified({ delivery_failed: true, undeliverable_here: false }); break;
    }
    context.receiver.add_credit(1);
});
for (const name of ['connection_error', 'session_error', 'receiver_error', 'protocol_error', 'error']) {
    container.on(name, (e) => emit('error', { where: name, description: String(e && (e.error || e.connection && e.connection.error) || e) }));
}
container.on('disconnected', () => emit('disconnected', {}));

const server = container.listen({ host: '127.0.0.1', port: f.port });
server.on('listening', () => emit('listening', { port: server.address().port }));
