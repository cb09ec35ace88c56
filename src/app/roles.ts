/**
 * What a process may do: all of it, or a part beside processes that do the rest.
 */
export const roles = ['follower', 'delivery', 'api', 'prices'] as const;
export type Role = (typeof roles)[number];
