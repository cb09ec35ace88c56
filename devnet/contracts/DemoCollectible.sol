// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {ERC721} from "@openzeppelin/contracts/token/ERC721/ERC721.sol";

/// An ordinary ERC-721. Its Transfer event has the first topic of an ERC-20 transfer, but four topics. It must cause no webhook.
contract DemoCollectible is ERC721 {
    uint256 public nextTokenId = 1;

    constructor(string memory name, string memory symbol) ERC721(name, symbol) {}

    function mint(address receiver) external returns (uint256 tokenId) {
        tokenId = nextTokenId++;
        _mint(receiver, tokenId);
    }
}
