// What the tests need around the application: a receiver, Postroom, and patience.

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export interface Received {
  headers: IncomingHttpHeaders;
  body: any;
}

/** An HTTP receiver that answers 200, or what it was told to answer next. */
export class Receiver {
  readonly received: Received[] = [];
  readonly next: number[] = [];
  private readonly server: Server;

  constructor() {
    this.server = createServer((request, response) => {
      const parts: Buffer[] = [];
      request.on('data', part => parts.push(part));
      request.on('end', () => {
        // `postroom check` only asks whether somebody is here.
        if (request.method !== 'POST') {
          response.writeHead(405).end();
          return;
        }
        const body = JSON.parse(Buffer.concat(parts).toString());
        this.received.push({ headers: request.headers, body });
        response.writeHead(this.next.shift() ?? 200).end();
      });
    });
  }

  async start(): Promise<void> {
    this.server.listen(0, '127.0.0.1');
    await once(this.server, 'listening');
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}/`;
  }

  of(orderId: string): Received[] {
    return this.received.filter(one => one.body.orderId === orderId);
  }

  stop(): void {
    this.server.closeAllConnections();
    this.server.close();
  }
}

/** The `postroom` program, with this example's configuration and retries that a test can wait for. */
export class Postroom {
  private readonly folder = mkdtempSync(join(tmpdir(), 'postroom-nestjs-'));
  private relay?: ChildProcess;

  constructor(
    private readonly databaseUrl: string,
    private readonly receiver: Receiver,
  ) {
    const text = readFileSync('postroom.toml', 'utf8')
      .replace('base = "60s"', 'base = "50ms"')
      .replace('jitter = "10s"', 'jitter = "0s"');
    writeFileSync(join(this.folder, 'postroom.toml'), `${text}\n[server]\nlisten = "127.0.0.1:0"\n`);
  }

  private get options() {
    const env = { PATH: process.env.PATH, DATABASE_URL: this.databaseUrl, FULFILMENT_URL: this.receiver.url };
    return { cwd: this.folder, env };
  }

  private get program(): string {
    return process.env.POSTROOM ?? 'postroom';
  }

  /** Runs a command that ends by itself, and returns what it printed. */
  async run(...words: string[]): Promise<string> {
    const ran = spawn(this.program, words, { ...this.options, stdio: ['ignore', 'pipe', 'pipe'] });
    let printed = '';
    ran.stdout.on('data', part => (printed += part));
    ran.stderr.on('data', part => (printed += part));
    const [status] = await once(ran, 'close');
    if (status !== 0) throw new Error(`postroom ${words.join(' ')}: ${printed}`);
    return printed;
  }

  start(): void {
    this.relay = spawn(this.program, ['run'], { ...this.options, stdio: ['ignore', 'ignore', 'inherit'] });
  }

  async stop(): Promise<void> {
    if (this.relay && this.relay.exitCode === null) {
      this.relay.kill('SIGTERM');
      await once(this.relay, 'exit');
    }
    rmSync(this.folder, { recursive: true });
  }
}

/** Waits until `look` finds something. */
export async function eventually<T>(what: string, look: () => Promise<T | undefined>): Promise<T> {
  const deadline = Date.now() + 60_000;
  for (;;) {
    const found = await look();
    if (found !== undefined) return found;
    if (Date.now() > deadline) throw new Error(`waited in vain for ${what}`);
    await new Promise(resolve => setTimeout(resolve, 20));
  }
}
