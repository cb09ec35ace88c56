// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Purse} from "./Purse.sol";

/// Moves native coin by internal calls: the transfers that no log and no transaction's `to` shows.
contract Splitter {
    event PurseCreated(address purse);

    error RevertedOnPurpose();

    /// Forwards the whole value in equal parts; the last receiver also gets what does not divide.
    function split(address payable[] calldata receivers) external payable {
        uint256 part = msg.value / receivers.length;
        for (uint256 i = 0; i + 1 < receivers.length; i++) {
            _send(receivers[i], part);
        }
        _send(receivers[receivers.length - 1], address(this).balance);
    }

    /// Sends half of the value to `reverted` inside a nested call that then reverts, so that this half never
    /// moved, and afterwards all of it to `kept`. The transaction itself succeeds.
    function splitWithRevertedHalf(address payable kept, address payable reverted) external payable {
        try this.sendThenRevert{value: msg.value / 2}(reverted) {
            revert("a call that always reverts returned");
        } catch {}
        _send(kept, address(this).balance);
    }

    /// Sends its value and then reverts: the transfer is in the trace, and it did not happen.
    function sendThenRevert(address payable receiver) external payable {
        _send(receiver, msg.value);
        revert RevertedOnPurpose();
    }

    /// Creates a contract that holds the value from its first moment (an internal CREATE with value).
    function createPurse() external payable returns (Purse purse) {
        purse = new Purse{value: msg.value}();
        emit PurseCreated(address(purse));
    }

    /// Creates a contract with the value and destroys it at once, which sends the value on (CREATE, SELFDESTRUCT).
    function createAndClosePurse(address payable receiver) external payable {
        new Purse{value: msg.value}().close(receiver);
    }

    function _send(address payable receiver, uint256 amount) private {
        (bool sent, ) = receiver.call{value: amount}("");
        require(sent, "a receiver refused the coin");
    }
}
