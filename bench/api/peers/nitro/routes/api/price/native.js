import { pool } from '../../../utils/database.js';

export default defineCachedEventHandler(
  async () => {
    const { rows } = await pool.query(
      `select price::float8 as price from price where asset = 'ETH' order by observed_at desc, id desc limit 1`,
    );
    return { price: rows[0]?.price ?? null, asset: 'ETH', base_currency: 'USD' };
  },
  { maxAge: 60 },
);
