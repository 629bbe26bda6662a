// What the rhea clients share: flags, events as lines of JSON, bodies, and messages in words.
'use strict';

const crypto = require('crypto');
const fs = require('fs');
const rhea = require('rhea');

// flags reads --name VALUE and --name (true); a number is given as a number. defaults name every flag there is.
function flags(defaults) {
    const out = Object.assign({ url: 'amqp://127.0.0.1:5672' }, defaults);
    const args = process.argv.slice(2);
    while (args.length) {
        const name = args.shift().replace(/^--/, '');
        if (!(name in out)) fail(`no such flag: --${name}`);
        if (typeof out[name] === 'boolean') out[name] = true;
        else out[name] = typeof out[name] === 'number' ? Number(args.shift()) : args.shift();
    }
    return out;
}

function fail(text) {
    process.stderr.write(text + '\n');
    process.exit(2);
}

function emit(event, fields) {
    process.stdout.write(JSON.stringify(Object.assign({ event }, fields)) + '\n');
}

// login gives how to log in: by TLS where the URL says amqps, with the user and password of the URL, or the certificate of INTEROP_CERT.
function login(url) {
    const u = new URL(url.replace(/^(amqps?|wss?):/, 'http:'));
    const o = { host: u.hostname, port: Number(u.port || 5672), username: 'anonymous' };
    if (u.username) Object.assign(o, { username: decodeURIComponent(u.username), password: decodeURIComponent(u.password) });
    if (url.startsWith('amqps:')) {
        const read = (name) => process.env[name] && fs.readFileSync(process.env[name]);
        Object.assign(o, { transport: 'tls', ca: read('INTEROP_CA'), cert: read('INTEROP_CERT'), key: read('INTEROP_KEY') });
        if (o.cert) Object.assign(o, { enable_sasl_external: true, username: undefined });
    }
    return o;
}

// connect opens a connection; what goes wrong on any level is an event "error" and the end.
function connect(url, options) {
    const container = rhea.create_container({ id: options && options.container || 'rhea-' + process.pid });
    container.on('disconnected', (context) => {
        if (context.connection.closing) return;
        emit('error', { where: 'connection', description: String(context.error || 'disconnected') });
        process.exit(1);
    });
    for (const where of ['connection', 'session', 'sender', 'receiver']) {
        container.on(where + '_error', (context) => {
            const e = context[where].error || {};
            emit('error', { where, condition: e.condition, description: e.description });
            process.exitCode = 1;
            if (where !== 'connection') context.connection.closing = true, context.connection.close();
        });
    }
    container.on('error', (e) => { emit('error', { where: 'client', description: String(e && e.stack || e) }); process.exit(1); });
    const web = /^ws:/.test(url) ? { connection_details: container.websocket_connect(require('ws'))(url, ['amqp'], {}) } : {};
    const c = container.connect(Object.assign(web, { reconnect: false, max_frame_size: 65536 }, login(url), options));
    return c;
}

// close closes the connection, which ends the program when the peer has answered.
function close(connection) {
    connection.closing = true;
    connection.close();
}

// body is the data of message number n: byte i is (i mod 251) * 7 + n.
function body(n, size) {
    const block = Buffer.alloc(Math.min(size, 251));
    for (let i = 0; i < block.length; i++) block[i] = (i * 7 + n) & 0xff;
    return size > 251 ? Buffer.alloc(size, block) : block;
}

function bytesOf(message) {
    const b = message.body;
    if (b === undefined || b === null) return null;
    if (Buffer.isBuffer(b)) return b;
    if (b.typecode === 0x75) return Array.isArray(b.content) ? Buffer.concat(b.content) : b.content;
    return null;
}

// plain makes a value of rhea fit for JSON.
function plain(v) {
    if (v === undefined || v === null) return null;
    if (Buffer.isBuffer(v)) return { base64: v.toString('base64') };
    if (v instanceof Date) return v.getTime();
    if (typeof v === 'bigint') return String(v);
    if (v.value !== undefined && typeof v.type === 'function' || v.constructor && v.constructor.name === 'Typed') return plain(v.value);
    if (Array.isArray(v)) return v.map(plain);
    if (typeof v === 'object') return Object.fromEntries(Object.entries(v).map(([k, x]) => [k, plain(x)]));
    return v;
}

// describe gives a message that came in: where, and every section.
function describe(context) {
    const m = context.message, data = bytesOf(m), link = context.receiver;
    const properties = m.application_properties || {};
    return {
        link: link.name,
        target: link.remote.attach && link.remote.attach.target && plain(link.remote.attach.target.address),
        source: link.remote.attach && link.remote.attach.source && plain(link.remote.attach.source.address),
        to: plain(m.to), id: plain(m.message_id), n: plain(properties.n), subject: plain(m.subject),
        reply_to: plain(m.reply_to), correlation_id: plain(m.correlation_id),
        settled: !!context.delivery.remote_settled,
        header: { durable: plain(m.durable), priority: plain(m.priority), ttl: plain(m.ttl), delivery_count: plain(m.delivery_count) },
        delivery_annotations: plain(m.delivery_annotations), message_annotations: plain(m.message_annotations),
        application_properties: plain(m.application_properties), footer: plain(m.footer),
        size: data ? data.length : null, sha: data ? crypto.createHash('sha256').update(data).digest('hex') : null,
        body: data ? undefined : plain(m.body),
    };
}

module.exports = { rhea, flags, fail, emit, login, connect, close, body, bytesOf, plain, describe };
