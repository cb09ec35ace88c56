// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// Emits events of payments, purchases and referrals. The caller decides their contents.
contract Till {
    event Paid(address indexed user, uint256 amount, string note);
    event Bought(uint256 amount);
    event Referred(address indexed user, address indexed referrer);

    /// Emits one payment for each amount.
    function pay(address user, uint256[] calldata amounts) external {
        for (uint256 i = 0; i < amounts.length; i++) emit Paid(user, amounts[i], "thank you");
    }

    function buy(uint256 amount) external {
        emit Bought(amount);
    }

    function refer(address referrer) external {
        emit Referred(msg.sender, referrer);
    }
}
