"""The errors about a folder or a setting that keep a node from starting. Their text is for the person who starts it;
anything else is a bug of ours and deserves its stack trace."""

from barnabas.broker.directories import FailedFolderError
from barnabas.broker.lifecycle import RegistrationError
from barnabas.config.values import ConfigError
from barnabas.controller.controller_node import ForeignQuorumError
from barnabas.log.folder.checkpoints import CheckpointError
from barnabas.log.folder.data_dir import FolderInUseError
from barnabas.log.folder.meta_properties import MetaPropertiesError
from barnabas.metadata.replay import ReplayError
from barnabas.metadata.versions import UnsupportedMetadataVersionError
from barnabas.node.folders import FolderError
from barnabas.raft.folder.metadata_batches import NewerMetadataError
from barnabas.raft.folder.metadata_log import DamagedMetadataError, MissingMetadataError
from barnabas.raft.folder.quorum_state import QuorumStateError
from barnabas.raft.folder.snapshots import CorruptCheckpointError
from barnabas.raft.quorum_client import ForeignClusterError, NodeIdInUseError

START_ERRORS = (
    CheckpointError,
    ConfigError,
    CorruptCheckpointError,
    DamagedMetadataError,
    FailedFolderError,
    FolderError,
    FolderInUseError,
    ForeignClusterError,
    ForeignQuorumError,
    MetaPropertiesError,
    MissingMetadataError,
    NewerMetadataError,
    NodeIdInUseError,
    QuorumStateError,
    RegistrationError,
    ReplayError,
    UnsupportedMetadataVersionError,
)
