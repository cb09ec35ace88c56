// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {VestingWallet} from "@openzeppelin/contracts/finance/VestingWallet.sol";

/// Holds coin that becomes the beneficiary's evenly, second by second, over a time from a start on.
contract Vesting is VestingWallet {
    constructor(
        address beneficiary,
        uint64 start,
        uint64 durationSeconds
    ) payable VestingWallet(beneficiary, start, durationSeconds) {}
}
