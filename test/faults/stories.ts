/**
 * All stories by kind.
 */
import { followerStories } from './followers.ts';
import { breakStories, killStories } from './kills.ts';
import { lieStories } from './lies.ts';
import { quorumStories } from './quorum.ts';
import { reorgStories } from './reorgs.ts';
import type { Story } from './story.ts';
import { transportStories } from './transport.ts';
import { unhashedStories } from './unhashed.ts';

const byKind = {
  lies: lieStories,
  quorum: quorumStories,
  unhashed: unhashedStories,
  transport: transportStories,
  reorgs: reorgStories,
  kills: killStories,
  breaks: breakStories,
  followers: followerStories,
};

export const allStories: readonly Story[] = Object.values(byKind).flat();

export const quickStories = (kind: keyof typeof byKind): Story[] =>
  byKind[kind].filter(({ isSlow }) => isSlow !== true);

export const slowStories: readonly Story[] = allStories.filter(({ isSlow }) => isSlow === true);
