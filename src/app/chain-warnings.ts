/**
 * Warnings about settings of `chain` that are valid but let too few independent nodes decide.
 */
import { httpUrls } from '../chain/nodes/nodes.ts';
import type { Config } from '../config/schema.ts';
import { operatorOf } from '../domain/endpoint.ts';
import { quorumOf } from '../domain/quorum.ts';

export type Warning = { path: string; message: string };

/** Shown by `chainbell config check` and logged at each start. URLs are named by position, because they may hold keys. */
export function chainWarnings({ chain }: Pick<Config, 'chain'>): Warning[] {
  return [...warnOfOperators(chain.rpc), ...warnOfQuorum(chain)];
}

function warnOfOperators(rpc: readonly string[]): Warning[] {
  const voters = rpc.map((url, index) => ({ url, path: `chain.rpc[${index}]` }));
  const groups = Map.groupBy(
    voters.filter(({ url }) => httpUrls([url]).length > 0),
    ({ url }) => operatorOf(new URL(url)),
  );
  return [...groups].flatMap(([operator, [first, ...others]]) => {
    const last = others.at(-1);
    if (first === undefined || last === undefined) return [];
    const paths = [first, ...others].map(({ path }) => path).join(', ');
    return [
      {
        path: last.path,
        message: `${paths} are all at ${operator}. Nodes of one operator or machine tend to fail together, but each has a vote. Use nodes from different operators.`,
      },
    ];
  });
}

function warnOfQuorum({ rpc, quorum }: Config['chain']): Warning[] {
  const nodeCount = httpUrls(rpc).length;
  const safe = quorumOf(nodeCount, 'auto');
  if (quorum === 'auto' || quorum >= safe) return [];
  const wrong = quorum === 1 ? 'One wrong node' : `${quorum} nodes that are wrong together`;
  const message = `is ${quorum}, and ${nodeCount} nodes need ${safe}. ${wrong} can make Chainbell follow a false chain. Use "auto" or ${safe}.`;
  return [{ path: 'chain.quorum', message }];
}
