/**
 * TLS to the server, as `sslmode` and `sslrootcert` of the URL ask for it.
 */
import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import path from 'node:path';
import { test } from 'node:test';
import { TLSSocket } from 'node:tls';
import { databaseError } from '../../../src/store/db/db.ts';
import { openDatabase } from '../../../src/store/db/open.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { type Credentials, createAuthority } from '../../kit/certificates.ts';
import { onPostgres } from '../../kit/each-database.ts';

/** Takes connections with TLS for a server that has none. Without credentials it says that it has no TLS, as such a server does. */
async function startTlsServer(target: { host: string; port: number }, credentials: Credentials | undefined) {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    socket.once('data', () => {
      socket.write(credentials === undefined ? 'N' : 'S');
      if (credentials === undefined) return;
      const inner = new TLSSocket(socket, { isServer: true, ...credentials });
      const outer = connect(target);
      sockets.add(outer);
      for (const one of [inner, outer]) one.on('error', () => socket.destroy());
      inner.pipe(outer).pipe(inner);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    port: (server.address() as AddressInfo).port,
    [Symbol.dispose]() {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

onPostgres(({ place }) => {
  const target = () => {
    const { hostname, port } = new URL(place().url);
    return { host: hostname, port: Number(port) };
  };
  const open = async (port: number, query: string) => {
    const url = new URL(place().url);
    url.port = String(port);
    const database = await openDatabase({ url: `${url.href}?${query}`, dataDir: '' });
    try {
      return await database.query(sql`select 1 as one`);
    } finally {
      await database.close();
    }
  };

  test('sslmode=require verifies the server with the authority in sslrootcert, without a warning of the driver', async () => {
    const authority = createAuthority();
    const file = path.join(place().dataDir, 'ca.pem');
    await writeFile(file, authority.certificate);
    using server = await startTlsServer(target(), authority.issue(['127.0.0.1']));
    const warnings: Error[] = [];
    const note = (warning: Error) => warnings.push(warning);
    process.on('warning', note);
    try {
      assert.deepEqual(await open(server.port, `sslmode=require&sslrootcert=${file}`), [{ one: 1 }]);
      // Warnings arrive with the next turn of the event loop.
      await new Promise(setImmediate);
    } finally {
      process.off('warning', note);
    }
    assert.deepEqual(warnings, []);
  });

  test('a server that cannot be verified, or has no TLS, is refused with what to change in the URL', async () => {
    const authority = createAuthority();
    const file = path.join(place().dataDir, 'ca.pem');
    await writeFile(file, authority.certificate);
    using trusted = await startTlsServer(target(), authority.issue(['127.0.0.1']));
    using other = await startTlsServer(target(), authority.issue(['other.example']));
    using plain = await startTlsServer(target(), undefined);
    for (const [port, query, message] of [
      [
        trusted.port,
        'sslmode=require',
        /^database: .*\. Add the file of the authority .*sslrootcert=.* in database\.url/,
      ],
      [
        other.port,
        `sslmode=verify-ca&sslrootcert=${file}`,
        /altnames.*\. Use a host name of the server's certificate/,
      ],
      [plain.port, 'sslmode=prefer', /does not support SSL connections\. Turn TLS on in the server/],
    ] as const)
      await assert.rejects(open(port, query), { name: 'Fault', code: 'invalid', message });
    const hba = 'no pg_hba.conf entry for host "::1", user "me", database "db", no encryption';
    const refused = databaseError(Object.assign(new Error(hba), { code: '28000' }));
    assert.match(
      String(refused),
      /no encryption\. If the server requires TLS, add sslmode=verify-full to database\.url/,
    );
  });
});
