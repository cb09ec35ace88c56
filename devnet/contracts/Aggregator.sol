// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// A price feed with Chainlink's AggregatorV3Interface. It returns the answer that it was last given.
contract Aggregator {
    uint8 public immutable decimals;
    uint80 private _round;
    int256 private _answer;
    uint256 private _updatedAt;

    constructor(uint8 decimals_) {
        decimals = decimals_;
    }

    function tell(int256 answer, uint256 updatedAt) external {
        _round += 1;
        _answer = answer;
        _updatedAt = updatedAt;
    }

    function latestRoundData()
        external
        view
        returns (uint80 roundId, int256 answer, uint256 startedAt, uint256 updatedAt, uint80 answeredInRound)
    {
        require(_round > 0, "No data present");
        return (_round, _answer, _updatedAt, _updatedAt, _round);
    }
}
