/**
 * The text that the demo prints when it is ready: everything a reader needs to try Chainbell, ready to copy.
 */
import { styleText } from 'node:util';
import type { Address } from '../src/core/hex.ts';
import { consoleLink } from '../src/domain/console-link.ts';
import { REWARD_SYMBOL } from './demo-config.ts';
import { tokenSymbols } from './market.ts';
import { type Scene, tokenFormats } from './scene.ts';

/** The facts on the screen. `--json` prints the same. */
export type DemoFacts = {
  version: string;
  chain: { id: number; block: number; rpcUrl: string; wsUrl: string };
  apiUrl: string;
  metricsUrl: string;
  dataFolder: string;
  apiKey: string;
  /** The token of the operator API. */
  adminToken: string;
  receiverUrl: string;
  priceFeedUrl: string;
  /** The month in UTC in which the demo started: `2026-11`. */
  month: string;
  /** The watched addresses that the demo created, one for each watched trader. */
  watched: readonly { id: string; address: Address }[];
  scene: Scene;
  /** "continuing at block 70", or the reason for a fresh start. */
  story: string;
  retryMinutes: readonly number[];
};

/** Adds color and weight to a text, or returns it unchanged if the terminal shows neither. */
type Paint = (style: 'bold' | 'dim' | 'cyan' | 'green' | 'yellow', text: string) => string;

/** Colors for the stream's terminal. None if it is not a terminal or NO_COLOR is set. */
export function paintFor(stream: NodeJS.WriteStream): Paint {
  return (style, text) => styleText(style, text, { stream });
}

/** The screen, ending with a line break. */
export function renderScreen(facts: DemoFacts, paint: Paint): string {
  const sections = [
    renderFacts(facts, paint),
    renderChain(facts, paint),
    ...renderCommands(facts).map(({ title, lines }) => [
      paint('bold', title),
      ...lines.map((line) => `  ${line}`),
    ]),
    renderNext(paint),
  ];
  return `\n${sections.map((lines) => lines.join('\n')).join('\n\n')}\n\n`;
}

function renderFacts(facts: DemoFacts, paint: Paint): string[] {
  const { chain, retryMinutes } = facts;
  const rows: [string, string][] = [
    [
      'console',
      `${paint('bold', consoleLink(facts.apiUrl, { key: facts.apiKey }))}  ${paint('dim', '(signed in)')}`,
    ],
    ['operator', `${consoleLink(facts.apiUrl, { admin: facts.adminToken })}`],
    ['API', facts.apiUrl],
    ['API key', `${facts.apiKey}  ${paint('dim', '(of this demo only)')}`],
    ['metrics', `${facts.metricsUrl}`],
    ['chain', `id ${chain.id}, block ${chain.block}, ${chain.rpcUrl} and ${chain.wsUrl}`],
    [
      'receiver',
      `${facts.receiverUrl}  ${paint('dim', 'retries a failed webhook after')} ${retryMinutes.join(', ')} min`,
    ],
    [
      'prices',
      `${facts.priceFeedUrl}/ETH  ${paint('dim', 'a feed with moving prices that the members follow')}`,
    ],
    ['data', `${facts.dataFolder}  ${paint('dim', facts.story)}`],
  ];
  return [
    `${paint('bold', `Chainbell ${facts.version}`)}  ${paint('dim', 'demo on a local chain')}`,
    ...rows.map(([name, value]) => `  ${name.padEnd(9)} ${value}`),
    `  ${paint('yellow', 'Only this demo allows webhooks to http:// on this machine. By default they go only to public https:// addresses.')}`,
  ];
}

function renderChain({ scene, watched }: DemoFacts, paint: Paint): string[] {
  const { traders, visitor, contracts, members, market } = scene;
  const isWatched = (address: Address) => watched.some((record) => record.address === address);
  return [
    paint('bold', 'On the chain'),
    ...traders.map(
      (trader) => `  trader     ${trader}${isWatched(trader) ? `  ${paint('green', 'watched')}` : ''}`,
    ),
    `  you        ${visitor}`,
    `  ERC-20     ${contracts.token}  ${tokenFormats.token.symbol}, ${tokenFormats.token.decimals} decimals`,
    `  ERC-20     ${contracts.feeToken}  ${tokenFormats.feeToken.symbol}, keeps 1 % of each transfer`,
    `  ERC-721    ${contracts.collectible}  ${paint('dim', 'causes no webhook')}`,
    `  splitter   ${contracts.splitter}  pays by internal transfers`,
    `  router     ${market.router}  Uniswap V2: ${tokenSymbols.join(', ')}, each paired with ETH`,
    `  farm       ${market.farm}  LP tokens and ETH earn ${REWARD_SYMBOL}`,
    `  members    ${members[0]}  ${paint('dim', `and ${members.length - 1} others swap, stake, vote, farm, bridge`)}`,
  ];
}

type Commands = { title: string; lines: string[] };

/** Each line works by itself in a shell. */
function renderCommands(facts: DemoFacts): Commands[] {
  const { apiUrl, metricsUrl, receiverUrl, watched, scene } = facts;
  const collection = `${apiUrl}/api/notifications/watched-addresses`;
  const withKey = `-H 'authorization: Bearer ${facts.apiKey}'`;
  const withJson = `-H 'content-type: application/json'`;
  const last = watched.at(-1);
  const record = `${collection}/${last?.id ?? '<watched_address_id>'}`;
  const body = (value: unknown) => `-d '${JSON.stringify(value)}'`;
  const transfer = { from: scene.deployer, to: scene.visitor, value: `0x${(10n ** 18n).toString(16)}` };
  const call = { jsonrpc: '2.0', id: 1, method: 'eth_sendTransaction', params: [transfer] };

  const points = `${apiUrl}/api/points`;
  const user = `user=${scene.members[0]}`;
  const month = `month=${facts.month}`;

  return [
    {
      title: 'Watch an address of your own, and send it 1 ETH: its webhook appears here',
      lines: [
        `curl -s ${collection} ${withKey} ${withJson} ${body({ address: scene.visitor, webhook_url: receiverUrl })}`,
        `curl -s ${facts.chain.rpcUrl} ${withJson} ${body(call)}`,
      ],
    },
    {
      title: `Get prices, pairs, supply and points without a key; ${apiUrl}/docs describes them`,
      lines: [
        `curl -s ${apiUrl}/api/price/native`,
        `curl -s ${apiUrl}/api/price/reward`,
        `curl -s ${apiUrl}/api/swap/volume/2`,
        `curl -s ${apiUrl}/api/swap/lp-value/1`,
        `curl -s ${apiUrl}/api/native/supply-info`,
        `curl -s '${points}/leaderboard?${month}'`,
        `curl -s '${points}/user?${month}&${user}'`,
        `curl -s '${points}/user-by-category?${month}&${user}'`,
        `curl -s '${points}/user-by-current-month?${user}'`,
        `curl -s '${points}/vs-last-month?${user}'`,
      ],
    },
    {
      title: 'List, get, change, delete',
      lines: [
        `curl -s ${collection} ${withKey}`,
        `curl -s ${record} ${withKey}`,
        `curl -s -X PATCH ${record} ${withKey} ${withJson} ${body({ watch_token: false })}`,
        `curl -s -X DELETE ${record} ${withKey}`,
      ],
    },
    {
      title: 'Break the receiver, watch the retries, and repair it',
      lines: [`curl -s -X POST ${receiverUrl}/break`, `curl -s -X POST ${receiverUrl}/mend`],
    },
    {
      title: 'See the state of the service',
      lines: [
        `curl -s ${apiUrl}/status`,
        `curl -s ${apiUrl}/livez`,
        `curl -s ${apiUrl}/readyz`,
        `curl -s ${metricsUrl}`,
      ],
    },
  ];
}

function renderNext(paint: Paint): string[] {
  return [
    paint('bold', 'Follow your own chain'),
    "  echo 'chain: { id: 1, rpc: [https://node.example] }' > chainbell.yaml",
    paint('dim', '  chainbell.example.yaml explains every key; copy only those that you fill in'),
    '  npm run --silent chainbell -- start --config chainbell.yaml',
    '',
    paint(
      'dim',
      'Press Enter to show this again, or Ctrl-C to stop everything. The next start continues here.',
    ),
  ];
}
