import { pool } from '../../../utils/database.js';

export default defineCachedEventHandler(
  async (event) => {
    const { month } = getQuery(event);
    const { rows } = await pool.query(
      `select '0x' || encode(user_address, 'hex') as "user", points::float8 as points from point_month
       where month = $1::date and points <> 0 order by points desc, user_address`,
      [`${month}-01`],
    );
    return rows;
  },
  { maxAge: 300 },
);
