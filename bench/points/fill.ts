/**
 * Databases with many awards, and with large leaderboards.
 */
import pg from 'pg';
import type { TestDatabase } from '../../test/kit/database.ts';
import { waitUntil } from '../../test/kit/wait.ts';

/** Leaderboards with `users` users each, one for each of the first `months` months of `year`. */
export type Boards = { users: number; year: number; months: number };

export const userOf = (index: number) => `0x${(index + 1).toString(16).padStart(40, '0')}`;
export const boardMonth = (year: number, month: number) => `${year}-${String(month).padStart(2, '0')}`;

/** Stores awards of this month and the last one with their sums, as insertAwards makes them. Builds indexes last. */
export async function fillAwards(place: TestDatabase, awards: number, users: number): Promise<void> {
  await using client = await connect(place);
  await client.query(`
    alter table point drop constraint point_pkey;
    drop index point_user;
    insert into point (rule, version, category, user_address, points, tx_hash, ordinal, role, awarded_at, inputs)
    select 'swap', 1, (array['trading', 'staking', 'bridge'])[1 + i % 3], decode(lpad(to_hex(1 + i % ${users}), 40, '0'), 'hex'),
      round((random() * 100)::numeric, 4), sha256(int8send(i)), 0, 'user',
      date_trunc('month', now() at time zone 'UTC') at time zone 'UTC' + (random() * 60 - 30) * interval '1 day', '{}'
    from generate_series(1::bigint, ${awards}) i;
    insert into point_day
    select user_address, (awarded_at at time zone 'UTC')::date, category, rule, version, role, sum(points), count(*)
    from point group by 1, 2, 3, 4, 5, 6;
    insert into point_month (month, user_address, points, award_count)
    select date_trunc('month', awarded_at at time zone 'UTC')::date, user_address, sum(points), count(*)
    from point group by 1, 2;
    alter table point add primary key (tx_hash, ordinal, rule, version, role);
    create index point_user on point (user_address, awarded_at, id);`);
  await vacuum(client);
}

export async function fillBoards(place: TestDatabase, boards: readonly Boards[]): Promise<void> {
  await using client = await connect(place);
  for (const { users, year, months } of boards)
    await client.query(`
      insert into point_month (month, user_address, points, award_count)
      select make_date(${year}, m, 1), decode(lpad(to_hex(u), 40, '0'), 'hex'), round((random() * 10000)::numeric, 4), 1
      from generate_series(1, ${months}) m, generate_series(1, ${users}) u`);
  await vacuum(client);
}

type Client = AsyncDisposable & Pick<pg.Client, 'query'>;

/** Connects without a statement timeout: the program's connections cancel statements that take minutes. */
async function connect({ url }: TestDatabase): Promise<Client> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query("set work_mem = '512MB'; set maintenance_work_mem = '1GB'");
  return Object.assign(client, { [Symbol.asyncDispose]: () => client.end() });
}

/** Marks the new rows as visible to all transactions, which doesn't happen at commit. */
async function vacuum(client: Client): Promise<void> {
  await waitUntil(
    async () => {
      await client.query('vacuum analyze point, point_day, point_month');
      const { rows } = await client.query(
        "select bool_and(relallvisible >= relpages * 0.99) as seen from pg_class where relname in ('point', 'point_day', 'point_month')",
      );
      return rows[0]?.seen === true;
    },
    { timeoutMs: 600_000 },
  );
}
