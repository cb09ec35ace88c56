// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";

interface IMintable is IERC20 {
    function mint(address receiver, uint256 amount) external;
}

/// Pools in which users stake tokens for a reward token, numbered from 0. Every second, the same reward is divided equally
/// among all pools, and within a pool in proportion to the stakes.
contract Farm {
    using SafeERC20 for IERC20;

    struct Pool {
        IERC20 token;
        uint256 staked;
        /// Rewards for one staked unit since the beginning, times 1e18.
        uint256 rewardPerUnit;
        uint256 updatedAt;
    }

    struct Stake {
        uint256 amount;
        /// The reward for this amount by rewardPerUnit at the last payout.
        uint256 rewardPaid;
    }

    event Deposit(address indexed user, uint256 indexed pid, uint256 amount);
    event Withdraw(address indexed user, uint256 indexed pid, uint256 amount);

    IMintable public immutable rewardToken;
    uint256 public immutable rewardPerSecond;
    Pool[] public pools;
    mapping(uint256 pid => mapping(address user => Stake)) public stakes;

    constructor(IMintable rewardToken_, uint256 rewardPerSecond_) {
        rewardToken = rewardToken_;
        rewardPerSecond = rewardPerSecond_;
    }

    /// Adds the next pool. Anyone may call it.
    function add(IERC20 token) external {
        pools.push(Pool(token, 0, 0, block.timestamp));
    }

    function poolCount() external view returns (uint256) {
        return pools.length;
    }

    /// Stakes the amount, and pays out the rewards so far. With 0 it only pays out.
    function deposit(uint256 pid, uint256 amount) external {
        Stake storage stake = _payOut(pid);
        pools[pid].token.safeTransferFrom(msg.sender, address(this), amount);
        pools[pid].staked += amount;
        _setAmount(pid, stake, stake.amount + amount);
        emit Deposit(msg.sender, pid, amount);
    }

    /// Returns the amount, and pays out the rewards so far.
    function withdraw(uint256 pid, uint256 amount) external {
        Stake storage stake = _payOut(pid);
        pools[pid].token.safeTransfer(msg.sender, amount);
        pools[pid].staked -= amount;
        _setAmount(pid, stake, stake.amount - amount);
        emit Withdraw(msg.sender, pid, amount);
    }

    function _payOut(uint256 pid) private returns (Stake storage stake) {
        Pool storage pool = pools[pid];
        if (pool.staked > 0) {
            uint256 reward = ((block.timestamp - pool.updatedAt) * rewardPerSecond) / pools.length;
            pool.rewardPerUnit += (reward * 1e18) / pool.staked;
        }
        pool.updatedAt = block.timestamp;
        stake = stakes[pid][msg.sender];
        uint256 due = (stake.amount * pool.rewardPerUnit) / 1e18 - stake.rewardPaid;
        if (due > 0) rewardToken.mint(msg.sender, due);
    }

    function _setAmount(uint256 pid, Stake storage stake, uint256 amount) private {
        stake.amount = amount;
        stake.rewardPaid = (amount * pools[pid].rewardPerUnit) / 1e18;
    }
}
