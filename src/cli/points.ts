/**
 * `chainbell points`: commands about awards.
 */
import type { Command } from 'commander';
import { addPointsExplainCommand } from './points-explain.ts';
import { addPointsImportCommand } from './points-import.ts';

export function addPointsCommands(program: Command): void {
  const points = program
    .command('points')
    .description('import awards, and explain why a transaction earned points');
  addPointsImportCommand(points);
  addPointsExplainCommand(points);
}
