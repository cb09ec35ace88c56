// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// Records who referred whom. The first referrer stays, and users can't refer themselves.
contract Referrals {
    event Referred(address indexed user, address indexed referrer);

    mapping(address user => address) public referrerOf;

    function register(address referrer) external {
        require(referrer != address(0) && referrer != msg.sender, "no such referrer");
        require(referrerOf[msg.sender] == address(0), "registered before");
        referrerOf[msg.sender] = referrer;
        emit Referred(msg.sender, referrer);
    }
}
