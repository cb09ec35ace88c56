/**
 * The points rules of the demo's market: at least one for each common category of spec 2.1.
 */
import type { Address } from '../src/core/hex.ts';
import type { Market } from './market.ts';

const SWAP =
  'Swap(address indexed sender, uint256 amount0In, uint256 amount1In, uint256 amount0Out, uint256 amount1Out, address indexed to)';
const MINT = 'Mint(address indexed sender, uint256 amount0, uint256 amount1)';
const VOTE_CAST =
  'VoteCast(address indexed voter, uint256 proposalId, uint8 support, uint256 weight, string reason)';
const BRIDGE_SENT =
  'BridgeSent(address indexed sender, uint256 indexed toChainId, address receiver, uint256 units, uint256 nonce)';
const STAKED = 'Staked(address indexed validator, uint256 units)';
const DEPOSIT = 'Deposit(address indexed user, uint256 indexed pid, uint256 units)';
const REFERRED = 'Referred(address indexed user, address indexed referrer)';

const swapCaps = { perTx: 500, perUserPerDay: 20_000 };
const swapRules = [
  {
    type: 'event' as const,
    id: 'swap-dollars',
    version: 1,
    category: 'trading',
    source: { event: SWAP, contracts: ['pair:2', 'pair:3'] },
    // The sender of a swap is a router. The trader is the signer of the transaction.
    user: 'tx.from',
    when: 'usd(amount0In + amount0Out, token0) >= 1',
    points: 'floor(usd(amount0In + amount0Out, token0)) / 100',
    caps: swapCaps,
  },
  {
    type: 'event' as const,
    id: 'swap-coin',
    version: 1,
    category: 'trading',
    source: { event: SWAP, contracts: ['pair:1', 'pair:4', 'pair:5', 'pair:6'] },
    user: 'tx.from',
    when: 'usd(amount1In + amount1Out, token1) >= 1',
    points: 'floor(usd(amount1In + amount1Out, token1)) / 100',
    caps: swapCaps,
  },
];

/** The section `points` of a configuration for these contracts. Their deployer earns nothing. */
export function pointsOf({ validatorStaking, farm, governor, bridge, referrals }: Market, deployer: Address) {
  return {
    // A referrer gets a tenth of the points of the members it referred.
    referral: { source: { event: REFERRED, contracts: [referrals] }, share: 0.1 },
    rules: [
      ...swapRules,
      {
        type: 'event' as const,
        id: 'stake',
        version: 1,
        category: 'staking',
        source: { event: STAKED, contracts: [validatorStaking] },
        user: 'arg:validator',
        points: 'floor(amount(units, ETH) * 100) / 10',
      },
      {
        type: 'event' as const,
        id: 'liquidity',
        version: 1,
        category: 'liquidity_provision',
        source: { event: MINT, contracts: ['pair:1', 'pair:2', 'pair:3', 'pair:4', 'pair:5', 'pair:6'] },
        user: 'tx.from',
        deny: [deployer],
        points: 'floor(amount(amount1, token1) * 200) / 10',
      },
      {
        type: 'event' as const,
        id: 'farm',
        version: 1,
        category: 'liquidity_provision',
        source: { event: DEPOSIT, contracts: [farm] },
        user: 'arg:user',
        when: 'units > 0',
        points: '5',
        caps: { perUserPerDay: 500 },
      },
      {
        type: 'event' as const,
        id: 'vote',
        version: 1,
        category: 'governance',
        source: { event: VOTE_CAST, contracts: [governor] },
        user: 'arg:voter',
        points: '20',
      },
      {
        type: 'event' as const,
        id: 'bridge',
        version: 1,
        category: 'bridge',
        source: { event: BRIDGE_SENT, contracts: [bridge] },
        user: 'arg:sender',
        deny: [deployer],
        points: 'floor(amount(units, ETH) * 50) / 10',
      },
      {
        type: 'event' as const,
        id: 'referral',
        version: 1,
        category: 'referral',
        source: { event: REFERRED, contracts: [referrals] },
        user: 'arg:referrer',
        points: '50',
      },
    ],
  };
}
