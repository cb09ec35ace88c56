/**
 * Compares each report as people see it: position, path, reason, line, caret and suggestion.
 */
import assert from 'node:assert/strict';
import { resolve, sep } from 'node:path';
import { test } from 'node:test';
import type { EnvironmentVariables } from '../../src/config/environment.ts';
import { loadConfig } from '../../src/config/load.ts';
import { ConfigError } from '../../src/config/problem-report.ts';
import { writeConfig } from './write-config.ts';

/** The texts begin on the line after the opening quote. Without `yaml`, there is no file. */
const cases: { promise: string; yaml?: string; env?: EnvironmentVariables; report: string }[] = [
  {
    promise: 'a misspelled key, with the key that was probably meant',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
  confirmatons: 12
`,
    report: `
chainbell.yaml:4:3  chain.confirmatons: unknown key
    4 |   confirmatons: 12
      |   ^^^^^^^^^^^^
      did you mean "confirmations"?
`,
  },
  {
    promise: 'a key in the wrong section, with the section that it belongs to',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
confirmations: 12
`,
    report: `
chainbell.yaml:4:1  confirmations: unknown key
    4 | confirmations: 12
      | ^^^^^^^^^^^^^
      did you mean "chain.confirmations"?
`,
  },
  {
    promise: 'an unknown key that resembles no other, without a suggestion',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
colour: blue
`,
    report: `
chainbell.yaml:4:1  colour: unknown key
    4 | colour: blue
      | ^^^^^^
`,
  },
  {
    promise: 'a number with more digits than a double keeps, instead of a rounded one',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
tokens:
  GEM: { address: "0x2222222222222222222222222222222222222222", decimals: 18, usd: 0.1234567890123456789 }
  ORE: { address: "0x3333333333333333333333333333333333333333", decimals: 18.0, usd: 1.10 }
`,
    report: `
chainbell.yaml:5:84  tokens.GEM.usd: 0.1234567890123456789 has more digits than a number keeps and would become 0.12345678901234568. Use fewer digits
    5 |   GEM: { address: "0x2222222222222222222222222222222222222222", decimals: 18, usd: 0.1234567890123456789 }
      |                                                                                    ^^^^^^^^^^^^^^^^^^^^^
`,
  },
  {
    promise: 'a limit of 0, with the value that means no limit',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
limits:
  records: 0
`,
    report: `
chainbell.yaml:5:12  limits.records: must be "off" (no limit) or a whole number from 1 to 1000000000
    5 |   records: 0
      |            ^
`,
  },
  {
    promise: 'a missing key, at the section that lacks it',
    yaml: `
log: { level: info }
chain:
  id: 1
`,
    report: `
chainbell.yaml:2:1  chain.rpc: is required
    2 | chain:
      | ^^^^^
`,
  },
  {
    promise: 'an empty section, with its required keys',
    yaml: `
log: { level: info }
chain:
`,
    report: `
chainbell.yaml:2:1  chain.id: is required
    2 | chain:
      | ^^^^^
chainbell.yaml:2:1  chain.rpc: is required
    2 | chain:
      | ^^^^^
`,
  },
  {
    promise: 'an empty file, with the required keys',
    yaml: `
`,
    report: `
chainbell.yaml:1:1  chain.id: is required
chainbell.yaml:1:1  chain.rpc: is required
`,
  },
  {
    promise: 'text instead of a number',
    yaml: `
chain:
  id: one
  rpc: [http://node.example]
`,
    report: `
chainbell.yaml:2:7  chain.id: must be a whole number, not text
    2 |   id: one
      |       ^^^
`,
  },
  {
    promise: 'a chain id in hexadecimal, with its decimal form',
    yaml: `
chain:
  id: 0x7a69
  rpc: [http://node.example]
`,
    report: `
chainbell.yaml:2:7  chain.id: must be a whole number, not text
    2 |   id: 0x7a69
      |       ^^^^^^
      in decimal it is 31337
`,
  },
  {
    promise: 'a number instead of text',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
http:
  host: 5
`,
    report: `
chainbell.yaml:5:9  http.host: must be text, not a number
    5 |   host: 5
      |         ^
      put it in quotes
`,
  },
  {
    promise: 'an amount without quotes, before it is rounded',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
supply:
  initial: 10000000000
`,
    report: `
chainbell.yaml:5:12  supply.initial: must be a decimal number in quotes, with at most 18 digits after the decimal point, not a number
    5 |   initial: 10000000000
      |            ^^^^^^^^^^^
      put it in quotes
`,
  },
  {
    promise: 'text instead of a list',
    yaml: `
chain:
  id: 1
  rpc: http://node.example
`,
    report: `
chainbell.yaml:3:8  chain.rpc: must be a list, not text
    3 |   rpc: http://node.example
      |        ^^^^^^^^^^^^^^^^^^^
`,
  },
  {
    promise: 'a list instead of a section',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
webhooks: [1, 3]
`,
    report: `
chainbell.yaml:4:11  webhooks: must be a map (key: value), not a list
    4 | webhooks: [1, 3]
      |           ^^^^^^
`,
  },
  {
    promise: 'a fraction instead of a whole number',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
http: { port: 80.5 }
`,
    report: `
chainbell.yaml:4:15  http.port: must be a whole number, not the number 80.5
    4 | http: { port: 80.5 }
      |               ^^^^
`,
  },
  {
    promise: 'an empty token of the operator API',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
http: { adminToken: '' }
`,
    report: `
chainbell.yaml:4:21  http.adminToken: must be 32 to 200 characters without spaces, or null to turn the operator API off
    4 | http: { adminToken:*'' }
      |                     ^^
      (* hides what may be secret)
`,
  },
  {
    promise: 'a token of the operator API that is too short, without showing it',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
http: { adminToken: hunter2 }
`,
    report: `
chainbell.yaml:4:21  http.adminToken: must be 32 to 200 characters without spaces, or null to turn the operator API off
    4 | http: { adminToken: ********}
      |                     ^^^^^^^
      (* hides what may be secret)
`,
  },
  {
    promise: 'a boolean that YAML 1.2 reads as text',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
webhooks:
  allowHttp: yes
`,
    report: `
chainbell.yaml:5:14  webhooks.allowHttp: must be true or false, not text
    5 |   allowHttp: yes
      |              ^^^
`,
  },
  {
    promise: 'a number above its limit',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
http:
  port: 65536
`,
    report: `
chainbell.yaml:5:9  http.port: must be at most 65535
    5 |   port: 65536
      |         ^^^^^
`,
  },
  {
    promise: 'a number below its limit',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
  confirmations: -1
`,
    report: `
chainbell.yaml:4:18  chain.confirmations: must be at least 0
    4 |   confirmations: -1
      |                  ^^
`,
  },
  {
    promise: 'an unknown choice, with the nearest valid one',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
log:
  level: warning
  format: JSON
`,
    report: `
chainbell.yaml:5:10  log.level: must be trace, debug, info, warn or error
    5 |   level: warning
      |          ^^^^^^^
chainbell.yaml:6:11  log.format: must be auto, json or pretty
    6 |   format: JSON
      |           ^^^^
      did you mean "json"?
`,
  },
  {
    promise: 'a start block that is neither latest nor a number',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
  startBlock: newest
`,
    report: `
chainbell.yaml:4:15  chain.startBlock: must be "latest" or a block number
    4 |   startBlock: newest
      |               ^^^^^^
`,
  },
  {
    promise: 'invalid YAML: a list that does not end',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example
`,
    report: `
chainbell.yaml:3:27  YAML: Flow sequence in block collection must be sufficiently indented and end with a ]
    3 |   rpc: [http://node.example
      |                           ^
`,
  },
  {
    promise: 'invalid YAML: a tab for indentation',
    yaml: `
chain:
\tid: 1
`,
    report: `
chainbell.yaml:2:1  YAML: Tabs are not allowed as indentation
    2 | \tid: 1
      | ^
      indent with spaces
`,
  },
  {
    promise: 'invalid YAML: an invalid escape',
    yaml: `
chain:
  id: 1
  rpc: ["http://node.example\\q"]
`,
    report: `
chainbell.yaml:3:29  YAML: Invalid escape sequence \\q
    3 |   rpc: ["http://node.example\\q"]
      |                             ^
`,
  },
  {
    promise: 'invalid YAML: two documents',
    yaml: `
chain: { id: 1 }
---
chain: { id: 2 }
`,
    report: `
chainbell.yaml:2:1  YAML: it must be one document. Remove the second ---
    2 | ---
      | ^^^
`,
  },
  {
    promise: 'invalid YAML: an unknown tag',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
dataDir: !folder data
`,
    report: `
chainbell.yaml:4:10  YAML: Unresolved tag: !folder
    4 | dataDir: !folder data
      |          ^^^^^^^
`,
  },
  {
    promise: 'a file that is not a map',
    yaml: `
- chain
`,
    report: `
chainbell.yaml:1:1  must be a map of settings (key: value)
    1 | - chain
      | ^^^^^^^
`,
  },
  {
    promise: 'a duplicate key',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
http: { port: 1 }
http: { port: 2 }
`,
    report: `
chainbell.yaml:5:1  http: is given twice, first on line 4
    5 | http: { port: 2 }
      | ^^^^
`,
  },
  {
    promise: 'a variable that is not set',
    yaml: `
chain:
  id: 1
  rpc: ["https://node.example/v2/\${RPC_KEY}"]
`,
    report: `
chainbell.yaml:3:34  chain.rpc[0]: the variable RPC_KEY is not set
    3 |   rpc: ["https://node.example/**/\${RPC_KEY}"]
      |                                  ^^^^^^^^^^
      (* hides what may be secret)
      set it, or give a default: \${RPC_KEY:-default}
`,
  },
  {
    promise: 'one port for the API and for metrics, also if one of the two is the default',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
http: { port: 9464 }
metrics: { host: 0.0.0.0 }
`,
    report: `
chainbell.yaml:5:1  metrics.port: is 9464, as http.port is, and one port can't serve both the API and metrics
    5 | metrics: { host: 0.0.0.0 }
      | ^^^^^^^
      set metrics.port or http.port to another port
`,
  },
  {
    promise: 'a malformed variable',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
dataDir: "\${HOME/data"
`,
    report: `
chainbell.yaml:4:11  dataDir: has a \${ that does not begin a variable
    4 | dataDir: "\${HOME/data"
      |           ^^
      variables are written \${NAME} or \${NAME:-default}
`,
  },
  {
    promise: 'an invalid value from a variable, like any other',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
http: { port: \${PORT:-none} }
`,
    report: `
chainbell.yaml:4:15  http.port: must be a whole number, not text
    4 | http: { port: \${PORT:-none} }
      |               ^^^^^^^^^^^^^
`,
  },
  {
    promise: 'an address that YAML reads as a number',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
tokens:
  USDT: { address: 1234567890123456789012345678901234567890, decimals: 6 }
`,
    report: `
chainbell.yaml:5:20  tokens.USDT.address: must be an address: 0x and 40 hexadecimal digits, not a number
    5 |   USDT: { address: 1234567890123456789012345678901234567890, decimals: 6 }
      |                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
`,
  },
  {
    promise: 'an address with a wrong checksum, with the right spelling',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
tokens:
  USDT: { address: 0x5FbDB2315678afecb367f032d93F642f64180aA3, decimals: 6 }
`,
    report: `
chainbell.yaml:5:20  tokens.USDT.address: has a wrong EIP-55 checksum: check the digits
    5 |   USDT: { address: 0x5FbDB2315678afecb367f032d93F642f64180aA3, decimals: 6 }
      |                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      if they are right, it is written 0x5FbDB2315678afecb367f032d93F642f64180aa3
`,
  },
  {
    promise: 'an address that is too short, with its length',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
tokens:
  USDT: { address: 0x5fbdb2315678afecb367f032d93f642f64180aa, decimals: 6 }
`,
    report: `
chainbell.yaml:5:20  tokens.USDT.address: must be an address: 0x and 40 hexadecimal digits (this has 39)
    5 |   USDT: { address: 0x5fbdb2315678afecb367f032d93f642f64180aa, decimals: 6 }
      |                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
`,
  },
  {
    promise: 'an address without 0x',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
tokens:
  USDT: { address: 5fbdb2315678afecb367f032d93f642f64180aa3, decimals: 6 }
`,
    report: `
chainbell.yaml:5:20  tokens.USDT.address: must be an address: 0x and 40 hexadecimal digits
    5 |   USDT: { address: 5fbdb2315678afecb367f032d93f642f64180aa3, decimals: 6 }
      |                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
`,
  },
  {
    promise: 'two pairs with one id, two pairs with one address',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
pairs:
  - id: 1
    name: A/B
    address: 0x0000000000000000000000000000000000000001
    token0: 0x000000000000000000000000000000000000000a
    token1: 0x000000000000000000000000000000000000000b
    token0Decimals: 18
    token1Decimals: 18
    fee: 300
    usdValueFrom: 1
    rewardPid: 0
  - id: 1
    name: A/B
    address: 0x0000000000000000000000000000000000000002
    token0: 0x000000000000000000000000000000000000000a
    token1: 0x000000000000000000000000000000000000000b
    token0Decimals: 18
    token1Decimals: 18
    fee: 300
    usdValueFrom: 1
    rewardPid: 0
  - id: 2
    name: A/B
    address: 0x0000000000000000000000000000000000000001
    token0: 0x000000000000000000000000000000000000000a
    token1: 0x000000000000000000000000000000000000000b
    token0Decimals: 18
    token1Decimals: 18
    fee: 300
    usdValueFrom: 1
    rewardPid: 0
`,
    report: `
chainbell.yaml:15:9  pairs[1].id: is the same as pairs[0].id
   15 |   - id: 1
      |         ^
chainbell.yaml:27:14  pairs[2].address: is the same as pairs[0].address
   27 |     address: 0x0000000000000000000000000000000000000001
      |              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
`,
  },
  {
    promise:
      'a pair with one token on both sides, decimals that contradict the list of tokens, and two wrapped coins',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
tokens:
  A: { address: 0x000000000000000000000000000000000000000A, decimals: 6 }
pairs:
  - id: 1
    name: A/B
    address: 0x0000000000000000000000000000000000000001
    token0: 0x000000000000000000000000000000000000000a
    token1: 0x000000000000000000000000000000000000000b
    token0Decimals: 18
    token1Decimals: 18
    fee: 300
    usdValueFrom: 1
    rewardPid: 0
  - id: 2
    name: C/A
    address: 0x0000000000000000000000000000000000000002
    token0: 0x000000000000000000000000000000000000000a
    token1: 0x000000000000000000000000000000000000000a
    token0Decimals: 6
    token1Decimals: 6
    fee: 300
    usdValueFrom: 1
    rewardPid: 0
`,
    report: `
chainbell.yaml:12:21  pairs[0].token0Decimals: is not 6, which tokens.A.decimals says of the same token
   12 |     token0Decimals: 18
      |                     ^^
chainbell.yaml:21:13  pairs[1].token1: is the same as pairs[1].token0
   21 |     token1: 0x000000000000000000000000000000000000000a
      |             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
chainbell.yaml:21:13  pairs[1].token1: is not pairs[0].token1, and only one can be the wrapped native coin
   21 |     token1: 0x000000000000000000000000000000000000000a
      |             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      set chain.native.wrapped to the right one
`,
  },
  {
    promise: 'a retention in an unknown unit',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
retention:
  attempts: 4w
`,
    report: `
chainbell.yaml:5:13  retention.attempts: has the unknown unit "w"
    5 |   attempts: 4w
      |             ^^
      the units are d, h, m and s
`,
  },
  {
    promise: 'a retention without a unit',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
retention:
  attempts: 30
`,
    report: `
chainbell.yaml:5:13  retention.attempts: must be a duration such as 30d, 12h, 90m or 45s, not a number
    5 |   attempts: 30
      |             ^^
`,
  },
  {
    promise: 'a retention of nothing',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
retention:
  attempts: 0d
`,
    report: `
chainbell.yaml:5:13  retention.attempts: must be between 1h and 3650d
    5 |   attempts: 0d
      |             ^^
`,
  },
  {
    promise: 'a retention of swaps that is too short for the volume of a day',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
retention:
  swaps: 47h
`,
    report: `
chainbell.yaml:5:10  retention.swaps: must be between 2d and 3650d
    5 |   swaps: 47h
      |          ^^^
`,
  },
  {
    promise: 'a secret that is too short, without showing it',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
secret: c2hvcnQ=
`,
    report: `
chainbell.yaml:4:9  secret: must be 32 bytes in base64
    4 | secret: ********
      |         ^^^^^^^^
      (* hides what may be secret)
      generate one with: openssl rand -base64 32
`,
  },
  {
    promise: 'a database without a secret',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
database:
  url: postgres://chainbell:pw@db.example/chainbell
secret: \${CHAINBELL_SECRET:-}
`,
    report: `
chainbell.yaml:6:9  secret: is required when database.url is set
    6 | secret: \${CHAINBELL_SECRET:-}
      |         ^^^^^^^^^^^^^^^^^^^^^
      generate one with: openssl rand -base64 32 (for a move from the embedded database: the one in dataDir/secret)
`,
  },
  {
    promise: 'a database that is not PostgreSQL',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
database:
  url: mysql://chainbell:pw@db.example/chainbell
`,
    report: `
chainbell.yaml:5:8  database.url: must be a postgres:// or postgresql:// URL, or empty
    5 |   url: mysql://************@db.example/*********
      |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      (* hides what may be secret)
`,
  },
  {
    promise: 'a network without a prefix length, and one in a short form',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
webhooks:
  allowCidrs: [10.0.0.1, "::1", 10.0/8, 10.0.0.0/33, "::ffff:010.0.0.1/128"]
`,
    report: `
chainbell.yaml:5:16  webhooks.allowCidrs[0]: must be a network such as 10.0.0.0/8
    5 |   allowCidrs: [10.0.0.1, "::1", 10.0/8, 10.0.0.0/33, "::ffff:010.0.0.1/128"]
      |                ^^^^^^^^
      did you mean "10.0.0.1/32"?
chainbell.yaml:5:26  webhooks.allowCidrs[1]: must be a network such as 10.0.0.0/8
    5 |   allowCidrs: [10.0.0.1, "::1", 10.0/8, 10.0.0.0/33, "::ffff:010.0.0.1/128"]
      |                          ^^^^^
      did you mean "::1/128"?
chainbell.yaml:5:33  webhooks.allowCidrs[2]: must be a network such as 10.0.0.0/8
    5 |   allowCidrs: [10.0.0.1, "::1", 10.0/8, 10.0.0.0/33, "::ffff:010.0.0.1/128"]
      |                                 ^^^^^^
chainbell.yaml:5:41  webhooks.allowCidrs[3]: must be a network such as 10.0.0.0/8
    5 |   allowCidrs: [10.0.0.1, "::1", 10.0/8, 10.0.0.0/33, "::ffff:010.0.0.1/128"]
      |                                         ^^^^^^^^^^^
chainbell.yaml:5:54  webhooks.allowCidrs[4]: must be a network such as 10.0.0.0/8
    5 |   allowCidrs: [10.0.0.1, "::1", 10.0/8, 10.0.0.0/33, "::ffff:010.0.0.1/128"]
      |                                                      ^^^^^^^^^^^^^^^^^^^^^^
`,
  },
  {
    promise: 'a node with an unknown scheme, without showing its API key',
    yaml: `
chain:
  id: 1
  rpc: [htps://user:pw@node.example/v2/KEY]
`,
    report: `
chainbell.yaml:3:9  chain.rpc[0]: must be an http, https, ws or wss URL
    3 |   rpc: [htps://*******@node.example/**/***]
      |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      (* hides what may be secret)
`,
  },
  {
    promise: 'a list of nodes without an HTTP URL',
    yaml: `
chain:
  id: 1
  rpc: [wss://node.example/v2/KEY]
`,
    report: `
chainbell.yaml:3:8  chain.rpc: must have at least one http or https URL: blocks are read over HTTP
    3 |   rpc: [wss://node.example/**/***]
      |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^
      (* hides what may be secret)
`,
  },
  {
    promise: 'a node that is listed twice, and so would confirm its own answers',
    yaml: `
chain:
  id: 1
  rpc: [https://node.example/v2/KEY, wss://node.example/v2/KEY, https://NODE.example:443/v2/KEY]
`,
    report: `
chainbell.yaml:3:65  chain.rpc[2]: is the same node as chain.rpc[0]
    3 |   rpc: [https://node.example/**/***, wss://node.example/**/***, https://NODE.example:443/**/***]
      |                                                                 ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      (* hides what may be secret)
      remove one of the two: each URL has a vote, and a node must not confirm its own answers
`,
  },
  {
    promise: 'one machine under two names, which would have two votes in the quorum',
    yaml: `
chain:
  id: 1
  rpc: [http://localhost:8545, http://127.0.0.1:8545/]
`,
    report: `
chainbell.yaml:3:32  chain.rpc[1]: is the same node as chain.rpc[0]
    3 |   rpc: [http://localhost:8545, http://127.0.0.1:8545/]
      |                                ^^^^^^^^^^^^^^^^^^^^^^
      remove one of the two: each URL has a vote, and a node must not confirm its own answers
`,
  },
  {
    promise: 'a quorum that the nodes can never reach',
    yaml: `
chain:
  id: 1
  rpc: [https://one.example, https://two.example, wss://two.example]
  quorum: 3
`,
    report: `
chainbell.yaml:4:11  chain.quorum: is above the number of HTTP nodes in chain.rpc, which is 2
    4 |   quorum: 3
      |           ^
      add nodes, or use "auto"
`,
  },
  {
    promise: 'a transaction type that Chainbell proves, and one that is listed twice',
    yaml: `
chain:
  id: 1
  rpc: [https://one.example]
  unprovedTypes: ["0x2", "0x7e", unsigned, "0x7E"]
`,
    report: `
chainbell.yaml:4:19  chain.unprovedTypes[0]: must be "unsigned", or a transaction type from 0x5 to 0xff
    4 |   unprovedTypes: ["0x2", "0x7e", unsigned, "0x7E"]
      |                   ^^^^^
      Chainbell proves types 0x0 to 0x4, so they need no entry
chainbell.yaml:4:44  chain.unprovedTypes[3]: is the same as chain.unprovedTypes[1]
    4 |   unprovedTypes: ["0x2", "0x7e", unsigned, "0x7E"]
      |                                            ^^^^^^
`,
  },
  {
    promise: 'unproved transaction types beside strict, which uses only blocks that are proved in full',
    yaml: `
chain:
  id: 1
  rpc: [https://one.example]
  verify: strict
  unprovedTypes: ["0x7e"]
`,
    report: `
chainbell.yaml:5:18  chain.unprovedTypes: contradicts chain.verify: strict uses only blocks that are proved in full
    5 |   unprovedTypes: ["0x7e"]
      |                  ^^^^^^^^
      remove the types, or set chain.verify to auto
`,
  },
  {
    promise: 'a retry schedule that is empty',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
webhooks:
  retryMinutes: []
`,
    report: `
chainbell.yaml:5:17  webhooks.retryMinutes: must have at least one entry
    5 |   retryMinutes: []
      |                 ^^
`,
  },
  {
    promise: 'a retry that does not wait',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
webhooks:
  retryMinutes: [1, 0, -3]
`,
    report: `
chainbell.yaml:5:21  webhooks.retryMinutes[1]: must be more than 0
    5 |   retryMinutes: [1, 0, -3]
      |                     ^
chainbell.yaml:5:24  webhooks.retryMinutes[2]: must be more than 0
    5 |   retryMinutes: [1, 0, -3]
      |                        ^^
`,
  },
  {
    promise: 'a price source of an unknown type, and one without a pair',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
prices:
  native:
    sources:
      - { type: htp, url: "https://prices.example" }
      - { type: pair, pair: 9 }
      - { type: fixed, pric: "1" }
`,
    report: `
chainbell.yaml:7:17  prices.native.sources[0].type: must be http, coingecko, binance, chainlink, pair or fixed
    7 |       - { type: htp, url: "https://prices.example" }
      |                 ^^^
      did you mean "http"?
chainbell.yaml:8:29  prices.native.sources[1].pair: no pair has the id 9
    8 |       - { type: pair, pair: 9 }
      |                             ^
chainbell.yaml:9:9  prices.native.sources[2].price: is required
    9 |       - { type: fixed, pric: "1" }
      |         ^^^^^^^^^^^^^^^^^^^^^^^^^^
chainbell.yaml:9:24  prices.native.sources[2].pric: unknown key
    9 |       - { type: fixed, pric: "1" }
      |                        ^^^^
      did you mean "price"?
`,
  },
  {
    promise: 'an invalid JSON path, a header that cannot be sent, and an average over too short a time',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
prices:
  native:
    sources:
      - type: http
        url: https://prices.example
        path: price
        timePath: $.a[
        headers: { "x y": abc }
      - { type: pair, pair: 1, minutes: 5 }
      - { type: coingecko, id: "a/b" }
      - { type: binance, symbol: ethusdt }
`,
    report: `
chainbell.yaml:9:15  prices.native.sources[0].path: must be a path into the JSON answer such as $.price or $['a'].b[0]
    9 |         path: price
      |               ^^^^^
chainbell.yaml:10:19  prices.native.sources[0].timePath: must be a path into the JSON answer such as $.price or $['a'].b[0]
   10 |         timePath: $.a[
      |                   ^^^^
chainbell.yaml:11:20  prices.native.sources[0].headers.x y: is not a valid name of an HTTP header
   11 |         headers: {*************
      |                    ^^^^^
      (* hides what may be secret)
chainbell.yaml:12:29  prices.native.sources[1].pair: no pair has the id 1
   12 |       - { type: pair, pair: 1, minutes: 5 }
      |                             ^
chainbell.yaml:12:41  prices.native.sources[1].minutes: must be at least 30
   12 |       - { type: pair, pair: 1, minutes: 5 }
      |                                         ^
chainbell.yaml:13:32  prices.native.sources[2].id: must be the id of a coin at CoinGecko such as ethereum
   13 |       - { type: coingecko, id: "a/b" }
      |                                ^^^^^
chainbell.yaml:14:34  prices.native.sources[3].symbol: must be a symbol of Binance such as ETHUSDT
   14 |       - { type: binance, symbol: ethusdt }
      |                                  ^^^^^^^
`,
  },
  {
    promise: 'one symbol for the native coin and the reward token',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
  native: { symbol: GEM }
  reward: { symbol: gem }
`,
    report: `
chainbell.yaml:5:21  chain.reward.symbol: is gem, as chain.native.symbol is, but prices are found by their symbol
    5 |   reward: { symbol: gem }
      |                     ^^^
      set it to the symbol of the reward token
`,
  },
  {
    promise: 'prices that would expire before the next round, and symbols that are already taken',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
tokens:
  SOL: { address: 0x1000000000000000000000000000000000000004, decimals: 18 }
prices:
  native: { everySeconds: 60, maxAgeSeconds: 59, sources: [{ type: fixed, price: "1" }] }
  tokens:
    eth: { sources: [{ type: fixed, price: "1" }] }
    RWD: { sources: [{ type: fixed, price: "1" }] }
    sol: { sources: [{ type: fixed, price: "1" }] }
    native: { sources: [{ type: fixed, price: "1" }] }
`,
    report: `
chainbell.yaml:7:46  prices.native.maxAgeSeconds: must be at least everySeconds (60): a price would be too old before the next one
    7 |   native: { everySeconds: 60, maxAgeSeconds: 59, sources: [{ type: fixed, price: "1" }] }
      |                                              ^^
chainbell.yaml:9:5  prices.tokens.eth: is the native coin, whose feed is prices.native
    9 |     eth: { sources: [{ type: fixed, price: "1" }] }
      |     ^^^
chainbell.yaml:10:5  prices.tokens.RWD: is the reward token, whose price comes from pair 1
   10 |     RWD: { sources: [{ type: fixed, price: "1" }] }
      |     ^^^
chainbell.yaml:11:5  prices.tokens.sol: is written SOL in tokens
   11 |     sol: { sources: [{ type: fixed, price: "1" }] }
      |     ^^^
chainbell.yaml:12:5  prices.tokens.native: cannot be a symbol: it ends the path /api/price/…, where native and reward are taken
   12 |     native: { sources: [{ type: fixed, price: "1" }] }
      |     ^^^^^^
`,
  },
  {
    promise: 'pairs that cannot determine the price for which they are a source',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
tokens:
  SOL: { address: 0x1000000000000000000000000000000000000004, decimals: 18 }
  DOGE: { address: 0x1000000000000000000000000000000000000005, decimals: 8 }
pairs:
  - { id: 4, name: SOL/ETH, address: 0x2000000000000000000000000000000000000004, token0: 0x1000000000000000000000000000000000000004, token1: 0x1000000000000000000000000000000000000000, token0Decimals: 18, token1Decimals: 18, fee: 300, usdValueFrom: 1, rewardPid: 4 }
prices:
  tokens:
    DOGE: { sources: [{ type: pair, pair: 4 }] }
    SOL: { sources: [{ type: pair, pair: 4 }] }
    XRP: { sources: [{ type: pair, pair: 6 }] }
`,
    report: `
chainbell.yaml:11:43  prices.tokens.DOGE.sources[0].pair: pair 4 has no token with the address of tokens.DOGE
   11 |     DOGE: { sources: [{ type: pair, pair: 4 }] }
      |                                           ^
chainbell.yaml:12:42  prices.tokens.SOL.sources[0].pair: pair 4 gives the price in the native coin, but prices.native is not set
   12 |     SOL: { sources: [{ type: pair, pair: 4 }] }
      |                                          ^
chainbell.yaml:13:42  prices.tokens.XRP.sources[0].pair: no pair has the id 6
   13 |     XRP: { sources: [{ type: pair, pair: 6 }] }
      |                                          ^
`,
  },
  {
    promise: 'a pair without a fixed value as a source of the native coin',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
pairs:
  - { id: 1, name: RWD/ETH, address: 0x2000000000000000000000000000000000000004, token0: 0x1000000000000000000000000000000000000004, token1: 0x1000000000000000000000000000000000000000, token0Decimals: 18, token1Decimals: 18, fee: 300, usdValueFrom: 1, rewardPid: 4 }
prices:
  native: { sources: [{ type: pair, pair: 1 }] }
`,
    report: `
chainbell.yaml:7:43  prices.native.sources[0].pair: pair 1 gives no price in USD, because its other token has no usd under tokens
    7 |   native: { sources: [{ type: pair, pair: 1 }] }
      |                                           ^
`,
  },
  {
    promise: 'the burn address in a list of subtracted addresses, because it is always subtracted',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
supply:
  initial: "10"
  locked:
    vesting: { team: 0x0000000000000000000000000000000000000000 }
`,
    report: `
chainbell.yaml:7:22  supply.locked.vesting.team: is the burn address, whose balance is always subtracted
    7 |     vesting: { team: 0x0000000000000000000000000000000000000000 }
      |                      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
`,
  },
  {
    promise: 'an address that would be subtracted twice from the supply',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
supply:
  initial: "10"
  locked:
    validatorsStaking: 0x000000000000000000000000000000000000000a
    vesting:
      team: 0x000000000000000000000000000000000000000A
`,
    report: `
chainbell.yaml:9:13  supply.locked.vesting.team: is the same as supply.locked.validatorsStaking
    9 |       team: 0x000000000000000000000000000000000000000A
      |             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
`,
  },
  {
    promise: 'symbols of tokens that are too long for a path, or would change it',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
tokens:
  AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA:
    address: 0x000000000000000000000000000000000000000a
    decimals: 6
  BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB: { address: 0x000000000000000000000000000000000000000b, decimals: 6 }
  A/B: { address: 0x000000000000000000000000000000000000000c, decimals: 6 }
`,
    report: `
chainbell.yaml:5:3  tokens.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA: must have 1 to 32 characters, and has 39
    5 |   AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA:
      |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
chainbell.yaml:9:3  tokens.A/B: cannot be a symbol: it ends the path /api/price/…, so it has no spaces and none of / ? # %
    9 |   A/B: { address: 0x000000000000000000000000000000000000000c, decimals: 6 }
      |   ^^^
`,
  },
  {
    promise: 'tokens that would have the same API path',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
tokens:
  USDT: { address: 0x000000000000000000000000000000000000000a, decimals: 6 }
  usdt: { address: 0x000000000000000000000000000000000000000b, decimals: 6 }
  native: { address: 0x000000000000000000000000000000000000000c, decimals: 6 }
`,
    report: `
chainbell.yaml:6:3  tokens.usdt: is the same as tokens.USDT
    6 |   usdt: { address: 0x000000000000000000000000000000000000000b, decimals: 6 }
      |   ^^^^
chainbell.yaml:7:3  tokens.native: cannot be a symbol: it ends the path /api/price/…, where native and reward are taken
    7 |   native: { address: 0x000000000000000000000000000000000000000c, decimals: 6 }
      |   ^^^^^^
`,
  },
  {
    promise: 'keys that are not plain text, or that have a special meaning in JavaScript',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
tokens:
  ? [USDT, USDC]
  : { address: 0x000000000000000000000000000000000000000a, decimals: 6 }
  __proto__: { address: 0x000000000000000000000000000000000000000b, decimals: 6 }
`,
    report: `
chainbell.yaml:5:5  tokens.?: cannot be a key
    5 |   ? [USDT, USDC]
      |     ^^^^^^^^^^^^
chainbell.yaml:7:3  tokens.__proto__: cannot be a key
    7 |   __proto__: { address: 0x000000000000000000000000000000000000000b, decimals: 6 }
      |   ^^^^^^^^^
`,
  },
  {
    promise: 'an alias for more than one value',
    yaml: `
chain: &chain
  id: 1
  rpc: [http://node.example]
http: *chain
metrics: { port: *nowhere }
`,
    report: `
chainbell.yaml:4:7  http: an alias can only stand for a single value, not for a list or a map
    4 | http: *chain
      |       ^^^^^^
chainbell.yaml:5:18  metrics.port: no value before this has this anchor
    5 | metrics: { port: *nowhere }
      |                  ^^^^^^^^
`,
  },
  {
    promise: 'several problems, in the order of the file',
    yaml: `
chain:
  id: 0
  rpc: []
htp: {}
log:
  level: loud
`,
    report: `
chainbell.yaml:2:7  chain.id: must be at least 1
    2 |   id: 0
      |       ^
chainbell.yaml:3:8  chain.rpc: must have at least one entry
    3 |   rpc: []
      |        ^^
chainbell.yaml:4:1  htp: unknown key
    4 | htp: {}
      | ^^^
      did you mean "http"?
chainbell.yaml:6:10  log.level: must be trace, debug, info, warn or error
    6 |   level: loud
      |          ^^^^
`,
  },
  {
    promise: 'an invalid value from the environment, by its variable',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
`,
    env: {
      CHAINBELL_HTTP_PORT: 'eighty',
      CHAINBELL_WEBHOOKS_RETRY_MINUTES: '1,x',
      CHAINBELL_SECRET: 'hunter2',
    },
    report: `
CHAINBELL_SECRET  secret: must be 32 bytes in base64
      generate one with: openssl rand -base64 32
CHAINBELL_HTTP_PORT  http.port: must be a whole number, not text
CHAINBELL_WEBHOOKS_RETRY_MINUTES  webhooks.retryMinutes[1]: must be a number, not text
`,
  },
  {
    promise:
      'a list in a variable that has only commas, because it may be meant to leave the list of the file as it is',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
webhooks:
  denyCidrs: [203.0.113.0/24]
`,
    env: { CHAINBELL_WEBHOOKS_DENY_CIDRS: ' , ,' },
    report: `
CHAINBELL_WEBHOOKS_DENY_CIDRS  webhooks.denyCidrs: has no entries
      list them, or write [] for an empty list
`,
  },
  {
    promise: 'a misspelled variable, with the variable that was probably meant',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
`,
    env: { CHAINBELL_HTTP_PROT: '1' },
    report: `
CHAINBELL_HTTP_PROT  unknown variable
      did you mean "CHAINBELL_HTTP_PORT"?
`,
  },
  {
    promise: 'a variable named like a section, with one of its keys',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
`,
    env: { CHAINBELL_PRICES_NATIVE: '{ sources: [] }' },
    report: `
CHAINBELL_PRICES_NATIVE  is a section of the configuration, and has no variable
      set its keys, for example CHAINBELL_PRICES_NATIVE_EVERY_SECONDS
`,
  },
  {
    promise: 'a list of maps in a variable that is not YAML',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
`,
    env: { CHAINBELL_PAIRS: '[{id: 1' },
    report: `
CHAINBELL_PAIRS  pairs: YAML: Flow map in block collection must be sufficiently indented and end with a }
`,
  },
  {
    promise: 'YAML in a variable that would be read otherwise than it looks, as in the file',
    env: {
      ...{ CHAINBELL_CHAIN_ID: '1', CHAINBELL_CHAIN_RPC: 'http://node.example' },
      CHAINBELL_SUPPLY_INITIAL: '1',
      CHAINBELL_SUPPLY_LOCKED_VESTING: `{ team: "0x${'4'.repeat(40)}", team: "0x${'5'.repeat(40)}", __proto__: x }`,
      CHAINBELL_TOKENS: `{ A: { address: "0x${'1'.repeat(40)}", decimals: 6, usd: 1.00000000000000000001 } }`,
      CHAINBELL_PRICES_NATIVE_SOURCES: `[{ type: coingecko, id: ethereum, apiKey: "\${KEY}" }]`,
    },
    report: `
CHAINBELL_SUPPLY_LOCKED_VESTING  supply.locked.vesting.team: is given twice
CHAINBELL_SUPPLY_LOCKED_VESTING  supply.locked.vesting.__proto__: cannot be a key
CHAINBELL_PRICES_NATIVE_SOURCES  prices.native.sources[0].apiKey: contains \${KEY}, which is replaced only in the file
      write the value of KEY
CHAINBELL_TOKENS  tokens.A.usd: 1.00000000000000000001 has more digits than a number keeps and would become 1. Use fewer digits
`,
  },
  {
    promise: 'a ${ in a variable that begins no variable',
    env: {
      ...{ CHAINBELL_CHAIN_ID: '1', CHAINBELL_CHAIN_RPC: 'http://node.example' },
      CHAINBELL_PRICES_NATIVE_SOURCES: `[{ type: coingecko, id: ethereum, apiKey: "\${KEY-x}" }]`,
    },
    report: `
CHAINBELL_PRICES_NATIVE_SOURCES  prices.native.sources[0].apiKey: has a \${ that does not begin a variable
      write the value. Variables are replaced only in the file
`,
  },
  {
    promise: 'two spellings of one variable',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
`,
    env: { CHAINBELL_DATA_DIR: 'a', CHAINBELL_DATADIR: 'b' },
    report: `
CHAINBELL_DATADIR  dataDir: is set by both CHAINBELL_DATA_DIR and CHAINBELL_DATADIR
`,
  },
  {
    promise: 'missing keys without a file, as missing variables',
    env: { DATABASE_URL: 'postgres://db.example/x' },
    report: `
CHAINBELL_CHAIN_ID  chain.id: is required
CHAINBELL_CHAIN_RPC  chain.rpc: is required
CHAINBELL_SECRET  secret: is required when database.url is set
      generate one with: openssl rand -base64 32 (for a move from the embedded database: the one in dataDir/secret)
`,
  },
  {
    promise: 'a problem in a long line, with the part around it',
    yaml: `
chain:
  id: 1
  rpc: [http://node.example]
webhooks: { caFile: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" , prts: [], more: "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy" }
`,
    report: `
chainbell.yaml:4:115  webhooks.prts: unknown key
    4 | xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" , prts: [], more: "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy
      |                                                        ^^^^
      did you mean "ports"?
chainbell.yaml:4:125  webhooks.more: unknown key
    4 | xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" , prts: [], more: "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy
      |                                                        ^^^^
`,
  },
  {
    promise: 'a problem in a file with Windows line ends, as in any other file',
    yaml: `
chain:\r
  id: x\r
  rpc: [http://node.example]\r
`,
    report: `
chainbell.yaml:2:7  chain.id: must be a whole number, not text
    2 |   id: x
      |       ^
`,
  },
];

for (const { promise, yaml, env = {}, report } of cases) {
  test(`reported: ${promise}`, () => {
    assert.equal(`\n${reportOf(yaml?.slice(1), env)}\n`, report);
  });
}

const suggestion = 'name another file with --config (chainbell.example.yaml explains every key)';

test('a missing file is reported as one problem, with the whole path and what to do', () => {
  const file = resolve('nowhere/chainbell.yaml');
  assert.throws(() => loadConfig({ file: 'nowhere/chainbell.yaml', env: {} }), {
    name: 'ConfigError',
    message: `${file}  there is no such file\n      ${suggestion}`,
    problems: [{ file, path: '', message: 'there is no such file', suggestion }],
  });
});

test('an unreadable file is reported as one problem', () => {
  using config = writeConfig('');
  assert.throws(() => loadConfig({ file: config.folder, env: {} }), {
    name: 'ConfigError',
    message: `${config.folder}  cannot be read: it is a folder\n      ${suggestion}`,
  });
});

test('a file of more than 1 MiB is not read', () => {
  using config = writeConfig(`# ${'x'.repeat(1_048_576)}\n`);
  assert.throws(() => loadConfig({ file: config.file, env: {} }), {
    name: 'ConfigError',
    message: `${config.file}  cannot be read: is larger than 1048576 bytes\n      ${suggestion}`,
  });
});

test('a file that is not UTF-8 text, such as the UTF-16 that PowerShell writes, says how to save it', () => {
  const utf16 = Buffer.from('chain: { id: 1, rpc: [http://node.example] }\n', 'utf16le');
  for (const bytes of [
    utf16,
    Buffer.concat([Buffer.from([0xff, 0xfe]), utf16]),
    Buffer.from('# caf\u00e9', 'latin1'),
  ]) {
    using config = writeConfig(bytes);
    assert.throws(() => loadConfig({ file: config.file, env: {} }), {
      name: 'ConfigError',
      message: `${config.file}  is not UTF-8 text\n      save it as UTF-8`,
    });
  }
});

test('each problem also has its file, line, column, path, message and suggestion as fields', () => {
  using config = writeConfig('chain:\n  id: 1\n  rpc: [http://node.example]\n  confirmatons: 12\n');
  assert.throws(() => loadConfig({ file: config.file, env: { CHAINBELL_HTTP_PORT: 'x' } }), {
    problems: [
      {
        path: 'chain.confirmatons',
        message: 'unknown key',
        suggestion: 'did you mean "confirmations"?',
        file: config.file,
        line: 4,
        col: 3,
      },
      { path: 'http.port', message: 'must be a whole number, not text', variable: 'CHAINBELL_HTTP_PORT' },
    ],
  });
});

test('one report contains every problem, even if there are dozens', () => {
  const ports = Array.from({ length: 50 }, () => '0').join(', ');
  const report = reportOf(
    `chain:\n  id: 1\n  rpc: [http://node.example]\nwebhooks: { ports: [${ports}] }\n`,
    {},
  );
  assert.equal(report.match(/must be at least 1/g)?.length, 50);
});

function reportOf(yaml: string | undefined, env: EnvironmentVariables): string {
  using config = writeConfig(yaml ?? '');
  try {
    loadConfig(yaml === undefined ? { env } : { file: config.file, env });
  } catch (error) {
    if (error instanceof ConfigError) return error.message.replaceAll(`${config.folder}${sep}`, '');
    throw error;
  }
  return 'no problems';
}
