// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {VestingWallet} from "@openzeppelin/contracts/finance/VestingWallet.sol";

/// Holds coins that the beneficiary earns evenly, second by second, over a period.
contract Vesting is VestingWallet {
    constructor(
        address beneficiary,
        uint64 start,
        uint64 durationSeconds
    ) payable VestingWallet(beneficiary, start, durationSeconds) {}
}
