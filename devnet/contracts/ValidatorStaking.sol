// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// Holds the coins that validators have staked.
contract ValidatorStaking {
    event Staked(address indexed validator, uint256 amount);
    event Unstaked(address indexed validator, uint256 amount);

    mapping(address validator => uint256) public stakeOf;

    function stake() external payable {
        require(msg.value > 0, "nothing to stake");
        stakeOf[msg.sender] += msg.value;
        emit Staked(msg.sender, msg.value);
    }

    function unstake(uint256 amount) external {
        stakeOf[msg.sender] -= amount;
        emit Unstaked(msg.sender, amount);
        (bool sent, ) = msg.sender.call{value: amount}("");
        require(sent, "the validator refused the coin");
    }
}
