// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// Holds native coin until anybody closes it; closing sends everything by SELFDESTRUCT.
contract Purse {
    constructor() payable {}

    receive() external payable {}

    function close(address payable receiver) external {
        selfdestruct(receiver);
    }
}
