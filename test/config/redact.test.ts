import assert from 'node:assert/strict';
import { test } from 'node:test';
import { excerpt, starSecrets } from '../../src/config/excerpt.ts';
import { redactDatabaseUrl, redactUrl } from '../../src/core/redact.ts';

test('only the scheme and the host of a URL are shown', () => {
  const shown = {
    'https://user:pw@rpc.example/v2/KEY?x=1': 'https://rpc.example/…',
    'https://rpc.example?key=KEY': 'https://rpc.example/…',
    'https://rpc.example/#KEY': 'https://rpc.example/…',
    'https://user:pw@rpc.example': 'https://rpc.example/…',
    'wss://rpc.example:8546/KEY': 'wss://rpc.example:8546/…',
    'http://[::1]:8545/': 'http://[::1]:8545',
    'http://127.0.0.1:8545': 'http://127.0.0.1:8545',
    'https://rpc.example:pw/KEY': '…',
    'not a URL': '…',
    '': '…',
  };
  assert.deepEqual(Object.fromEntries(Object.keys(shown).map((url) => [url, redactUrl(url)])), shown);
});

test('a database URL is shown without its passwords', () => {
  const shown = {
    'postgres://user:pw@one.example:5432,two.example:5433/chainbell?sslmode=require':
      'postgres://user:…@one.example:5432,two.example:5433/chainbell?sslmode=require',
    'postgresql://user:p@ss/word@db.example/chainbell': 'postgresql://user:…@db.example/chainbell',
    'postgres://user@db.example/chainbell': 'postgres://user@db.example/chainbell',
    'postgres://db.example/chainbell?password=pw&sslpassword=pw&user=a':
      'postgres://db.example/chainbell?password=…&sslpassword=…&user=a',
    '': '',
  };
  assert.deepEqual(Object.fromEntries(Object.keys(shown).map((url) => [url, redactDatabaseUrl(url)])), shown);
});

test('a line of the file is shown with its secrets replaced by asterisks of the same length', () => {
  const shown = [
    [
      'rpc: [https://user:pw@a.example/v2/KEY?x=1, "ws://b"]',
      'rpc: [https://*******@a.example/**/***?***, "ws://b"]',
    ],
    ['rpc: [http://a/KEY,http://b/KEY]', 'rpc: [http://a/***,http://b/***]'],
    [`rpc: ["https://a/\${KEY}?x=\${Y:-abc}"]`, `rpc: ["https://a/\${KEY}?***********"]`],
    ['url: postgres://user:p@ss/w@one,two/db', 'url: postgres://******@**/*@one,two/**'],
    ['secret: abcdef', 'secret: ******'],
    ['{ "secret": "abcdef" }', '{ "secret": "******" }'],
    [`secret: \${CHAINBELL_SECRET:-}`, `secret: \${CHAINBELL_SECRET:-}`],
    ['formerSecrets: [abcdef, "ghi"]', 'formerSecrets: ***************'],
    [`formerSecrets: \${FORMER_SECRETS:-}`, `formerSecrets: \${FORMER_SECRETS:-}`],
    [
      '{ type: coingecko, id: ether, apiKey: CG-abc, plan: pro }',
      '{ type: coingecko, id: ether, apiKey: ******, plan: pro }',
    ],
    ['headers: { x-auth: abc, y: def }', 'headers: {**********************'],
    ['  x-api-key: "ab c"', '  x-api-key: "****"'],
    ['  Authorization: Bearer abc', '  Authorization: **********'],
    [`  apiKey: \${KEY:-}`, `  apiKey: \${KEY:-}`],
    [
      'token0: 0x1000000000000000000000000000000000000003',
      'token0: 0x1000000000000000000000000000000000000003',
    ],
    ['contracts: [pair:2, token:USDC, 0x01]', 'contracts: [pair:2, token:USDC, 0x01]'],
    ['  - token:USDC', '  - token:USDC'],
    ['  token: token:USDC', '  token: token:USDC'],
    [`  token: "0x${'1'.repeat(40)}"`, `  token: "0x${'1'.repeat(40)}"`],
    ['  token: abc', '  token: ***'],
    ['  token:abc', '  token:***'],
    ['headers: { a: b, token:abc }', 'headers: {******************'],
    [`  - ${'A'.repeat(43)}=`, `  - ${'*'.repeat(44)}`],
    ['  - http://127.0.0.1:8545', '  - http://127.0.0.1:8545'],
    ['confirmations: 12', 'confirmations: 12'],
  ];
  assert.deepEqual(
    shown.map(([line = '']) => [line, starSecrets(line)]),
    shown,
  );
});

test('a secret whose key is on another line is shown as asterisks, also where the YAML is wrong', () => {
  const cases = [
    ['headers:\n  x-client: 8273645', '  x-client: *******'],
    [
      '- type: http\n  headers: # mine\n    x-first: "a"\n\n    # the second\n    "x-pass": "h\u00e9"',
      '    "x-pass": "***',
    ],
    ['- headers:\n    x-pass: "a b', '    x-pass: "***'],
    ['  headers:\n  x-pass: abc', '  x-pass: ***'],
    ['  headers:\n\tx-pass: abc', '\tx-pass: ***'],
    ['  headers:\n    x-pass: |\n      a: b', '      ****'],
    ['  headers: {\n  x-pass: abc }', '  x-pass: *****'],
    ['a: 1\nsecret: "abc" def', 'secret: "********'],
    ['secret:\n  abc', '  ***'],
    ['secret: >-\n  abc', '  ***'],
    ['secret:\nabc', '***'],
    ['{ "secret":\n"abc" }', '*******'],
    ['formerSecrets:\n- abc', '- ***'],
    ['formerSecrets: [\nabc,', '****'],
    ['http:\n  adminToken:\n    abc', '    ***'],
    ['secret:\nhttp: { port: 1 }', 'http: { port: 1 }'],
    ['- headers: { a: b }\n  path: $.price', '  path: $.price'],
    [`a: 1\n- ${'A'.repeat(24)}`, `- ${'*'.repeat(24)}`],
    ['secret: "abc\ndef"', '****'],
    ["secret: 'abc\n\ndef\nghi'", '****'],
    ['secret: abc\ndef', '***'],
    ['http:\n  adminToken: "abc, d\n  efg"', '  ****'],
    ['- { id: ether, apiKey: "abc\n  def" }', '  ******'],
    ['- headers:\n    x-pass: "abc\ndef"', '****'],
    ['- { id: ether, apiKey: abc }\n- { id: eth er }', '- { id: eth er }'],
    ['{ "apiKey": "abc"\n}', '}'],
    ['- token: token:USDC\n  minutes 5', '  minutes 5'],
    ['- headers:\n    x-a: b\n  type: hhttp', '  type: hhttp'],
    ['- headers:\n  x-a: b\n  x-pass: abc', '  x-pass: ***'],
    ['tokens:\n  MYTOKEN:\n    decimals: 1x', '    decimals: 1x'],
    ['prices:\n  tokens: # mine\n    KEY:\n      sources:\n        - type: htp', '        - type: htp'],
    ['"tokens": {\n  "KEY": { "decimals": "1x" }', '  "KEY": { "decimals": "1x" }'],
    ['tokens:\n  KEY:\n    sources:\n      - { apiKey: abc }', '      - { apiKey: ****}'],
    ['tokens:\n  apiKey: abc', '  apiKey: ***'],
  ];
  const shown = cases.map(([text = '']) => {
    const lines = text.split('\n');
    const [excerpted = ''] = excerpt(text, { line: lines.length, col: 1, length: 1 });
    return [text, excerpted.slice(8)];
  });
  assert.deepEqual(shown, cases);
});
