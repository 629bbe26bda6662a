// recv.js receives messages and prints each.
//
//   --url U  --address SOURCE  --dynamic  --count N (then it ends; 0: never)  --credit N (by hand: N at first, no more)
//   --drain (with --credit: drain it, and say what was drained)  --window N  --links L  --sessions S  --capability C
//   --outcome accept|release|reject|modify|none  --settled (ask for settled ones)  --reply (answer each to its reply-to)
//   --from T (ask for a replay from that time: a filter of the source)  --quiet (the sum alone)
'use strict';
const { rhea, flags, emit, connect, close, describe, bytesOf } = require('./lib');

const f = flags({ address: '', dynamic: false, count: 0, credit: 0, drain: false, window: 100, links: 1, sessions: 1, capability: '',
    outcome: 'accept', from: '', settled: false, reply: false, quiet: false });
const connection = connect(f.url);
let got = 0, attached = 0, replier;

connection.on('connection_open', () => {
    const sessions = [];
    for (let i = 0; i < f.sessions; i++) {
        const s = connection.create_session();
        s.begin();
        sessions.push(s);
    }
    for (let i = 0; i < f.links; i++) {
        const source = f.dynamic ? { dynamic: true } : { address: f.address };
        if (f.from) source.filter = { from_time: rhea.types.wrap_described(f.from, 'from_time') };
        if (f.capability) source.capabilities = [f.capability];
        sessions[i % f.sessions].open_receiver({
            name: `rhea-${process.pid}-${i}`, source, credit_window: f.credit ? 0 : f.window, autoaccept: false, snd_settle_mode: f.settled ? 1 : 2,
        });
    }
    if (f.reply) replier = connection.open_sender({ target: {} });
});

connection.on('receiver_open', (context) => {
    const r = context.receiver;
    if (f.credit) {
        if (f.drain) r.drain = true;
        r.add_credit(f.credit);
    }
    if (!r.source || !r.source.address) return; // refused: the detach follows
    emit('attached', { link: r.name, address: r.source.address });
    attached++;
    if (attached === f.links) emit('ready', {});
});

connection.on('receiver_drained', (context) => {
    emit('drained', { link: context.receiver.name, received: got });
    if (!f.count || got >= f.count) end();
});

connection.on('message', (context) => {
    got++;
    if (!f.quiet) emit('message', describe(context));
    const d = context.delivery, m = context.message;
    if (f.reply && m.reply_to) {
        replier.send({ to: m.reply_to, correlation_id: m.correlation_id === undefined ? m.message_id : m.correlation_id,
            application_properties: m.application_properties, body: rhea.message.data_section(bytesOf(m) || Buffer.alloc(0)) });
    }
    switch (f.outcome) {
    case 'accept': d.accept(); break;
    case 'release': d.release({}); break;
    case 'reject': d.reject({ condition: 'amqp:precondition-failed', description: 'as the test asked' }); break;
    case 'modify': d.modified({ delivery_failed: true, undeliverable_here: false }); break;
    }
    if (f.count && got >= f.count && !f.drain) end();
});

function end() {
    emit('done', { received: got });
    close(connection);
}
