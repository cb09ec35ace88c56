// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// Holds native coins, sends some of them, and closes: an animal of the Zoo.
contract Animal {
    constructor() payable {}

    receive() external payable {}

    function give(address payable receiver, uint256 amount) external payable {
        (bool done, ) = receiver.call{value: amount}("");
        require(done, "a receiver refused the coin");
    }

    function balance() external view returns (uint256) {
        return address(this).balance;
    }

    function close(address payable receiver) external payable {
        selfdestruct(receiver);
    }
}

/// Every way to move native coins inside a transaction, and calls that only look like one.
contract Zoo {
    error RevertedOnPurpose();

    receive() external payable {}

    /// The comment beside each call says what moves. `old` was created before, and has coins.
    function run(Animal old, address payable receiver) external payable {
        Animal made = new Animal{value: 40}(); // this → made 40
        Animal salted = new Animal{value: 30, salt: 0}(); // this → salted 30
        made.give{value: 7}(receiver, 3); // this → made 7, made → receiver 3
        _delegate(address(made), abi.encodeCall(made.give, (receiver, 2))); // this → receiver 2
        this.look(old); // nothing: STATICCALLs
        _call(address(4), 6, "data"); // this → 0x04, a precompile, 6
        _call(address(4), 0, "data"); // nothing, and not every tracer shows it
        _refused(address(this), 20, abi.encodeCall(this.giveThenRevert, (receiver, 5))); // nothing
        _refused(receiver, 1 ether, ""); // nothing: more than the balance
        _call(receiver, 0, ""); // nothing
        old.close(payable(address(old))); // nothing: it pays itself
        salted.close(receiver); // salted → receiver 30
        made.close(payable(address(old))); // made → old 44
        old.give(receiver, 1); // old → receiver 1
        _call(address(this), 9, ""); // this → this 9
        _delegate(address(old), abi.encodeCall(old.close, (receiver))); // this → receiver, the rest
    }

    function look(Animal animal) external view returns (uint256) {
        return animal.balance();
    }

    function giveThenRevert(address payable receiver, uint256 amount) external payable {
        _call(receiver, amount, "");
        revert RevertedOnPurpose();
    }

    function _call(address target, uint256 amount, bytes memory input) private {
        (bool done, ) = target.call{value: amount}(input);
        require(done, "a call failed");
    }

    function _refused(address target, uint256 amount, bytes memory input) private {
        (bool done, ) = target.call{value: amount}(input);
        require(!done, "a call that must fail succeeded");
    }

    function _delegate(address target, bytes memory input) private {
        (bool done, ) = target.delegatecall(input);
        require(done, "a delegated call failed");
    }
}
