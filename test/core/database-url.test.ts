import assert from 'node:assert/strict';
import { test } from 'node:test';
import { databaseUrlProblem, parseDatabaseUrl } from '../../src/core/database-url.ts';

test('each of several hosts gets a URL with the shared credentials, database and parameters', () => {
  const { urls, mustWrite } = parseDatabaseUrl(
    'postgres://me:p,w@one:5433,two,[::1]:5434/chainbell?a=1&target_session_attrs=read-write&b=2',
  );
  assert.deepEqual(urls, [
    'postgres://me:p,w@one:5433/chainbell?a=1&b=2',
    'postgres://me:p,w@two/chainbell?a=1&b=2',
    'postgres://me:p,w@[::1]:5434/chainbell?a=1&b=2',
  ]);
  assert.equal(mustWrite, true);
});

test('a URL with one host stays unchanged, and accepts a read-only server by default', () => {
  for (const text of ['postgres://me@one/db?a=1', 'postgresql:///db?host=/run/postgresql', 'postgres://h'])
    assert.deepEqual(parseDatabaseUrl(text), { urls: [text], mustWrite: false });
  const asked = parseDatabaseUrl('postgres://one/db?target_session_attrs=primary');
  assert.deepEqual(asked, { urls: ['postgres://one/db'], mustWrite: true });
});

test('with several hosts, only a server that accepts writes is used, unless target_session_attrs is any', () => {
  assert.equal(parseDatabaseUrl('postgres://one,two/db').mustWrite, true);
  assert.equal(parseDatabaseUrl('postgres://one,two/db?target_session_attrs=any').mustWrite, false);
});

test('every mode of TLS verifies the server, unless it is switched off or libpq’s meaning is asked for', () => {
  const passed = (query: string) => parseDatabaseUrl(`postgres://one/db?${query}`).urls[0]?.split('?')[1];
  for (const mode of ['prefer', 'require', 'verify-ca', 'verify-full'])
    assert.equal(passed(`sslmode=${mode}&a=1`), 'sslmode=verify-full&a=1');
  for (const query of ['sslmode=disable', 'sslmode=no-verify', 'uselibpqcompat=true&sslmode=require'])
    assert.equal(passed(query), query);
});

test('the problem of an invalid URL does not contain the password', () => {
  const problems: [string, RegExp | undefined][] = [
    ['postgres://me:pass@one:1,two:2/db?target_session_attrs=read-write', undefined],
    ['postgresql:///db', undefined],
    ['postgres://one/db?sslmode=require', undefined],
    ['postgres://one/db?a=1&sslmode=bogus', /sslmode=bogus, which Chainbell doesn't have\nuse verify-full/],
    ['mysql://one/db', /must be a postgres/],
    ['postgres://one /db', /must be a postgres/],
    ['postgres://one,,two/db', /empty host/],
    ['postgres://me:pass/word@one/db', /host or port that cannot be one\n.*%2F/],
    ['postgres://one:port,two/db', /host or port/],
    [
      'postgres://one/db?target_session_attrs=standby',
      /standby, but Chainbell needs to write\nuse read-write/,
    ],
  ];
  for (const [url, expected] of problems) {
    const problem = databaseUrlProblem(url);
    if (expected === undefined) assert.equal(problem, undefined, url);
    else assert.match(problem ?? '', expected, url);
    assert.doesNotMatch(problem ?? '', /pass/, url);
  }
});
