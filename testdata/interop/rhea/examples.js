// examples.js is what the examples of rhea's documentation show, one for each name.
//
//   --url U  --example helloworld|selector|browser|durable  --address A
'use strict';
const { rhea, flags, emit, connect, close } = require('./lib');

const f = flags({ example: '', address: 'examples' });
const c = connect(f.url);
const source = {
    helloworld: f.address,
    selector: { address: f.address, filter: rhea.filter.selector("colour = 'green'") },
    browser: { address: f.address, distribution_mode: 'copy' },
    durable: { address: f.address, durable: 2, expiry_policy: 'never' },
}[f.example];

const got = [];
const colours = ['green', 'red', 'green'];
let detached = 0;

c.on('connection_open', () => c.open_receiver({ name: 'examples', source }));
c.on('receiver_open', (context) => {
    const s = context.receiver.source;
    emit('source', { filter: s.filter || null, durable: s.durable || 0, expiry: s.expiry_policy || null });
    if (!detached) c.open_sender(f.address);
    else finish();
});
c.once('sendable', (context) => {
    colours.forEach((colour, n) => context.sender.send({ message_id: n, body: colour, application_properties: { colour } }));
});
c.on('message', (context) => {
    got.push(context.message.body);
    if (got.length < colours.length) return;
    if (f.example !== 'durable') return finish();
    setImmediate(() => context.receiver.detach()); // not closed: a subscription that is to last
});
c.on('receiver_close', () => { // the router says that nothing lasts
    detached++;
    c.open_receiver({ name: 'examples', source });
});

function finish() {
    emit('done', { got: got.join(' '), detached });
    close(c);
}
