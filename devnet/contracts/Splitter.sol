// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Purse} from "./Purse.sol";

/// Moves native coins by internal calls, so neither a log nor the transaction's `to` shows the transfers.
contract Splitter {
    event PurseCreated(address purse);

    error RevertedOnPurpose();

    /// Forwards the whole value in equal parts. The last receiver also gets the remainder.
    function split(address payable[] calldata receivers) external payable {
        uint256 part = msg.value / receivers.length;
        for (uint256 i = 0; i + 1 < receivers.length; i++) {
            _send(receivers[i], part);
        }
        _send(receivers[receivers.length - 1], address(this).balance);
    }

    /// Sends half of the value to `reverted` in a nested call that reverts, so that half doesn't move. Then it sends all of the
    /// value to `kept`. The transaction itself succeeds.
    function splitWithRevertedHalf(address payable kept, address payable reverted) external payable {
        try this.sendThenRevert{value: msg.value / 2}(reverted) {
            revert("a call that always reverts returned");
        } catch {}
        _send(kept, address(this).balance);
    }

    /// Sends its value and then reverts, so the trace has a transfer that did not happen.
    function sendThenRevert(address payable receiver) external payable {
        _send(receiver, msg.value);
        revert RevertedOnPurpose();
    }

    /// Creates a contract that holds the value from its first moment (an internal CREATE with value).
    function createPurse() external payable returns (Purse purse) {
        purse = new Purse{value: msg.value}();
        emit PurseCreated(address(purse));
    }

    /// Creates a contract with the value and destroys it at once, which forwards the value (CREATE, SELFDESTRUCT).
    function createAndClosePurse(address payable receiver) external payable {
        new Purse{value: msg.value}().close(receiver);
    }

    function _send(address payable receiver, uint256 amount) private {
        (bool sent, ) = receiver.call{value: amount}("");
        require(sent, "a receiver refused the coin");
    }
}
