// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";

/// Proposals and votes. The weight of a vote is its voter's current balance of the voting token. The event of a vote is that
/// of OpenZeppelin's Governor.
contract Governor {
    struct Tally {
        uint256 against;
        uint256 inFavour;
        uint256 abstained;
    }

    event ProposalCreated(uint256 indexed proposalId, address indexed proposer, string description);
    event VoteCast(
        address indexed voter,
        uint256 proposalId,
        uint8 support,
        uint256 weight,
        string reason
    );

    IERC20 public immutable votingToken;
    /// Also the number of the newest proposal, because they are counted from 1.
    uint256 public proposalCount;
    mapping(uint256 proposalId => Tally) public tallies;
    mapping(uint256 proposalId => mapping(address voter => bool)) public hasVoted;

    constructor(IERC20 votingToken_) {
        votingToken = votingToken_;
    }

    function propose(string calldata description) external returns (uint256 proposalId) {
        proposalId = ++proposalCount;
        emit ProposalCreated(proposalId, msg.sender, description);
    }

    /// `support`: 0 against, 1 in favor, 2 abstained.
    function castVote(uint256 proposalId, uint8 support) external {
        require(proposalId > 0 && proposalId <= proposalCount, "no such proposal");
        require(!hasVoted[proposalId][msg.sender], "voted before");
        hasVoted[proposalId][msg.sender] = true;
        uint256 weight = votingToken.balanceOf(msg.sender);
        Tally storage tally = tallies[proposalId];
        if (support == 0) tally.against += weight;
        else if (support == 1) tally.inFavour += weight;
        else if (support == 2) tally.abstained += weight;
        else revert("no such vote");
        emit VoteCast(msg.sender, proposalId, support, weight, "");
    }
}
