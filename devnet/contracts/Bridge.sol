// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// This side of a bridge. It locks coins that go to another chain, and releases coins that come from there. It trusts the
/// relayer about what happened on the other side.
contract Bridge {
    event BridgeSent(
        address indexed sender,
        uint256 indexed toChainId,
        address receiver,
        uint256 amount,
        uint256 nonce
    );
    event BridgeReceived(
        address indexed receiver,
        uint256 indexed fromChainId,
        uint256 amount,
        uint256 nonce
    );

    address public immutable relayer;
    /// The nonce of the next message to any chain.
    uint256 public nextNonce;
    mapping(uint256 chainId => mapping(uint256 nonce => bool)) public isReceived;

    constructor(address relayer_) {
        relayer = relayer_;
    }

    function send(uint256 toChainId, address receiver) external payable {
        require(msg.value > 0, "nothing to send");
        emit BridgeSent(msg.sender, toChainId, receiver, msg.value, nextNonce++);
    }

    /// Each message from the other chain is paid once.
    function receiveFrom(
        uint256 fromChainId,
        uint256 nonce,
        address payable receiver,
        uint256 amount
    ) external {
        require(msg.sender == relayer, "only the relayer");
        require(!isReceived[fromChainId][nonce], "received before");
        isReceived[fromChainId][nonce] = true;
        emit BridgeReceived(receiver, fromChainId, amount, nonce);
        (bool sent, ) = receiver.call{value: amount}("");
        require(sent, "the receiver refused the coin");
    }
}
