/**
 * Names of well-known chains by their EIP-155 id. They are the names that the chains' own sites use.
 */
const names: Readonly<Record<number, string>> = {
  1: 'Ethereum',
  10: 'OP Mainnet',
  25: 'Cronos',
  56: 'BNB Smart Chain',
  100: 'Gnosis',
  137: 'Polygon',
  250: 'Fantom',
  324: 'ZKsync Era',
  1329: 'Sei',
  2020: 'Ronin',
  5000: 'Mantle',
  8453: 'Base',
  17000: 'Holesky',
  31337: 'Local chain',
  42161: 'Arbitrum One',
  42220: 'Celo',
  43114: 'Avalanche C-Chain',
  59144: 'Linea',
  81457: 'Blast',
  534352: 'Scroll',
  560048: 'Hoodi',
  11155111: 'Sepolia',
};

/** The chain's name, or its id in words. */
export const chainName = (chainId: number): string => names[chainId] ?? `Chain ${chainId}`;
