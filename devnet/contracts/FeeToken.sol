// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";

/// An ERC-20 that keeps 1 % of each transfer, so one call emits two Transfer events. The fee's event comes first, so the
/// event of the net amount is not the first log of its transaction. Anyone may mint, without a fee.
contract FeeToken is ERC20 {
    address public immutable feeCollector;

    constructor(string memory name, string memory symbol, address feeCollector_) ERC20(name, symbol) {
        feeCollector = feeCollector_;
    }

    function mint(address receiver, uint256 amount) external {
        _mint(receiver, amount);
    }

    function _update(address from, address to, uint256 amount) internal override {
        if (from == address(0) || to == address(0)) {
            super._update(from, to, amount);
            return;
        }
        uint256 fee = amount / 100;
        super._update(from, feeCollector, fee);
        super._update(from, to, amount - fee);
    }
}
