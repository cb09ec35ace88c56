/**
 * `chainbell points`: commands about awards.
 */
import type { Command } from 'commander';
import { addPointsExplainCommand } from './points-explain.ts';
import { addPointsImportCommand } from './points-import.ts';

export function addPointsCommands(program: Command): void {
  const points = program.command('points').description('import awards, and explain what earned points');
  addPointsImportCommand(points);
  addPointsExplainCommand(points);
}
