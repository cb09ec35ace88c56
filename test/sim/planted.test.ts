import { testBugs } from './seeds.ts';

testBugs([
  {
    name: 'a worker that settles without its lease is found',
    bug: 'no fence',
    likely: 93,
    steps: 2_000,
    problem: /settled .* although it had lost lane/,
  },
  {
    name: 'a follower that commits upon another tip than the one there is is found',
    bug: 'no compare-and-set',
    problem: /duplicate key .*block_pkey|is stored on another than its parent/,
  },
  {
    name: 'an outcome that is settled for a later delivery than its own is found',
    bug: 'no redelivery fence',
    likely: 165,
    problem: /^notification \d+ is \["(waiting|processed)",.*should be \["waiting",/,
  },
  {
    name: 'a reorg that forgets attempts without an outcome is found',
    bug: 'forgotten attempts',
    likely: 86,
    problem: /was sent, and does not count as seen/,
  },
  {
    name: 'a crash between moving a notification and waking its lane is found',
    bug: 'move before wake',
    likely: 14,
    problem: /^lane \d+ was forgotten$/,
  },
  {
    name: 'held notifications that are never released, because there are too many, are found',
    bug: 'release without shares',
    likely: 69,
    problem: /notification \d+ is still held$/,
  },
  {
    name: 'retries that go on for transfers that a reorg orphaned are found',
    bug: 'retries of orphans',
    likely: 86,
    problem: /^notification \d+ is \["waiting",.*should be \["withdrawn",/,
  },
  {
    name: 'changes of addresses that are pruned before the address filter has them are found',
    bug: 'early pruning',
    likely: 30,
    steps: 1_500,
    problem: /^there is no notification /,
  },
  {
    name: 'a success that leaves the queue without its attempt is found',
    bug: 'success without attempt',
    problem: /^notification \d+ is \["processed",.*should be \["waiting",/,
  },
  {
    name: 'retention that drops a day with its pending notifications is found',
    bug: 'drop of pending',
    likely: 81,
    problem: /^notification \d+ is deleted, and (waiting|held)$/,
  },
  {
    name: 'retention that drops a day with notifications of blocks that are not final is found',
    bug: 'drop before final',
    likely: 26,
    problem: /^notification \d+ is deleted, and block \d+ is not final$/,
  },
  {
    name: 'a follower that believes a single node is found',
    bug: 'no quorum',
    problem: /is stored, which only the liar has|calm rounds block \d+ is not stored/,
  },
]);
