/**
 * The roles of a process. A process has all of them, or some while other processes have the rest.
 */
export const roles = ['follower', 'delivery', 'api', 'prices'] as const;
export type Role = (typeof roles)[number];
