// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// Holds native coins until anyone closes it, which sends everything by SELFDESTRUCT.
contract Purse {
    constructor() payable {}

    receive() external payable {}

    function close(address payable receiver) external {
        selfdestruct(receiver);
    }
}
