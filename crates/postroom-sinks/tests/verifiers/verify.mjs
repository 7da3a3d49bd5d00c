// Reads cases as JSON on standard input, and says what Node's libraries make of each.

import { createPublicKey, verify as verifyEd25519 } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const require = createRequire(`${process.argv[2]}/`);
const { Webhook } = require('standardwebhooks');
const { HTTP, MQTT } = require('cloudevents');
const now = Date.now;

const kinds = {
    // v1, by the official library, as if `later` seconds had passed.
    shared(one) {
        Date.now = () => now() + (one.later ?? 0) * 1000;
        try {
            return new Webhook(one.secret).verify(one.body, one.headers);
        } finally {
            Date.now = now;
        }
    },

    // v1a, by Node itself.
    public(one) {
        const { headers, body } = one;
        const content = `${headers['webhook-id']}.${headers['webhook-timestamp']}.${body}`;
        const signatures = headers['webhook-signature'].split(' ');
        const signature = signatures.find((text) => text.startsWith('v1a,')).slice(4);
        const x = Buffer.from(one.key, 'base64').toString('base64url');
        const key = createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x }, format: 'jwk' });
        if (!verifyEd25519(null, Buffer.from(content), key, Buffer.from(signature, 'base64'))) {
            throw new Error('the signature is not valid');
        }
        return true;
    },

    // A CloudEvent in whichever mode the headers say, by the official SDK.
    cloud(one) {
        // In binary mode values are percent-encoded, which the SDK leaves as it is.
        const decode = ([name, value]) => [
            name,
            name.startsWith('ce-') ? decodeURIComponent(value) : value,
        ];
        const headers = Object.fromEntries(Object.entries(one.headers).map(decode));
        const event = HTTP.toEvent({ headers, body: one.body });
        event.validate();
        const { data, ...attributes } = event.toJSON();
        return { attributes, data };
    },

    // The same by the binding for MQTT. Not validated: to the SDK every user property is an
    // attribute of the event, also those whose names no attribute may have.
    mqtt(one) {
        const { headers, body } = one;
        const PUBLISH = { 'Content Type': one.content_type };
        const event = MQTT.toEvent({ PUBLISH, headers, body: JSON.parse(body) }, true);
        const { data, ...attributes } = event.toJSON();
        // In binary mode it is the packet's own, which the SDK leaves out.
        attributes.datacontenttype ??= one.content_type;
        return { attributes, data };
    },
};

const verdicts = JSON.parse(readFileSync(0, 'utf8')).map((one) => {
    try {
        return { ok: kinds[one.kind](one) };
    } catch (error) {
        return { error: `${error.name}: ${error.message}` };
    }
});
console.log(JSON.stringify(verdicts));
