// send.js sends messages and prints what became of each.
//
//   --url U  --address TARGET (none: the anonymous terminus)  --to NAME  --count N  --sizes 0,1,100 (in turn)  --settled
//   --rate R (a second)  --links L  --sessions S (links are dealt over them)  --id PREFIX  --quiet (the sum alone)
'use strict';
const { rhea, flags, emit, connect, close, body } = require('./lib');

const f = flags({ address: '', to: '', count: 1, sizes: '100', settled: false, rate: 0, links: 1, sessions: 1, id: 'm', quiet: false });
const sizes = f.sizes.split(',').map(Number);
const sum = { sent: 0, accepted: 0, rejected: 0, released: 0, modified: 0 };
const names = new Map(); // of deliveries that have no outcome yet
let ended = 0, allowed = f.rate ? 0 : Infinity;

const connection = connect(f.url);
const senders = [];
connection.on('connection_open', () => {
    const sessions = [];
    for (let i = 0; i < f.sessions; i++) {
        const s = connection.create_session();
        s.begin();
        sessions.push(s);
    }
    for (let i = 0; i < f.links; i++) {
        senders.push(sessions[i % f.sessions].open_sender({
            name: `rhea-${process.pid}-${i}`, target: f.address ? { address: f.address } : {}, snd_settle_mode: f.settled ? 1 : 0,
        }));
    }
});

function more() {
    for (let moved = true; moved;) {
        moved = false;
        for (const s of senders) {
            if (sum.sent >= f.count || sum.sent >= allowed || !s.sendable()) continue;
            moved = true;
            const n = sum.sent++;
            const message = { message_id: `${f.id}-${n}`, application_properties: { n }, body: rhea.message.data_section(body(n, sizes[n % sizes.length])) };
            if (f.to) message.to = f.to;
            const d = s.send(message);
            if (f.settled) ended++;
            else names.set(d, { id: message.message_id, n });
        }
    }
    finish();
}

function finish() {
    if (ended < f.count || connection.closing) return;
    emit('done', sum);
    if (timer) clearInterval(timer);
    close(connection);
}

for (const state of ['accepted', 'rejected', 'released', 'modified']) {
    connection.on(state, (context) => {
        const d = context.delivery, known = names.get(d);
        if (!known) return;
        names.delete(d);
        sum[state]++;
        ended++;
        const e = d.remote_state && d.remote_state.error;
        if (!f.quiet) emit('outcome', Object.assign(known, { state, condition: e && e.condition || undefined, description: e && e.description || undefined }));
        finish();
    });
}
connection.on('sendable', more);
const timer = f.rate ? setInterval(() => { allowed += Math.max(1, f.rate / 100); more(); }, 10) : null;
