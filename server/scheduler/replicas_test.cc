// Proves which shards of an array are missing without some of its holders, and what the errors of
// arrays that are lost say.
#include "server/scheduler/replicas.h"

#include "base/testing/status_matchers.h"

namespace tessera::server::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Returns an array on the devices 10 to 15 of a mesh (x=2, y=3), held by these devices.
ArrayRecord ArrayOn(const std::vector<int64_t>& holders, ir::DimAxes dims, ir::Dims shape,
                    ir::AxisList unreduced = {}) {
  api::ArraySpec spec;
  spec.shape = std::move(shape);
  spec.placement.mesh.axes = {{"x", 2}, {"y", 3}};
  spec.placement.spec.dims = std::move(dims);
  spec.placement.spec.unreduced = std::move(unreduced);
  spec.placement.devices = {10, 11, 12, 13, 14, 15};
  ArrayRecord array;
  array.spec = std::make_shared<const api::ArraySpec>(std::move(spec));
  array.state = ArrayState::kReady;
  for (const int64_t d : holders) array.holders[d] = 1;
  return array;
}

TEST(ReplicasTest, AShardIsMissingIfNoReplicaIsHeld) {
  EXPECT_THAT(MissingShards(ArrayOn({14}, {}, {12})), IsEmpty());
  EXPECT_THAT(MissingShards(ArrayOn({12, 13}, {{"x"}}, {12})), IsEmpty());
  EXPECT_THAT(MissingShards(ArrayOn({13, 14, 15}, {{"x"}}, {12})), ElementsAre(0));
  EXPECT_THAT(MissingShards(ArrayOn({10, 14}, {{"y"}}, {12})), ElementsAre(2));
  EXPECT_THAT(MissingShards(ArrayOn({10, 11, 12, 13}, {{"x", "y"}}, {12})), ElementsAre(4, 5));
  EXPECT_THAT(MissingShards(ArrayOn({}, {{"x"}}, {12})), ElementsAre(0, 3));
}

TEST(ReplicasTest, ATermOfASumHasReplicasOfItsOwn) {
  EXPECT_THAT(MissingShards(ArrayOn({12, 13}, {}, {12}, {"x"})), IsEmpty());
  EXPECT_THAT(MissingShards(ArrayOn({13, 14, 15}, {}, {12}, {"x"})), ElementsAre(0));
}

TEST(ReplicasTest, HoldersAreCounted) {
  ArrayRecord array = ArrayOn({10, 11}, {}, {12});
  EXPECT_FALSE(HasAllHolders(array));
  EXPECT_EQ(NumHeld(array), 2u);
  array.state = ArrayState::kPlanned;
  EXPECT_EQ(NumHeld(array), 6u);
  EXPECT_TRUE(HasAllHolders(ArrayOn({10, 11, 12, 13, 14, 15}, {}, {12})));
}

TEST(ReplicasTest, AShardIsNamedByItsRanges) {
  const auto text = [](ir::DimAxes dims, ir::Dims shape, int ordinal) {
    return ShardText(*ArrayOn({}, std::move(dims), std::move(shape)).spec, ordinal);
  };
  EXPECT_EQ(text({{"x"}}, {12, 7}, 3), "[6:12, :]");
  EXPECT_EQ(text({{"y"}, {"x"}}, {12, 8}, 1), "[4:8, 0:4]");
  EXPECT_EQ(text({{"y", "x"}}, {12}, 1), "[4:6]");
  EXPECT_EQ(text({}, {}, 5), "[]");
  EXPECT_EQ(ShardText(*ArrayOn({}, {}, {12}, {"x"}).spec, 4), "[:] (term 1)");
}

TEST(ReplicasTest, AnErrorNamesTheShardsAndTheirDevices) {
  LossErrors errors(MakeError(ErrorKind::kWorkerLost, "lost with its shards on w0"),
                    " of worker w0: it stopped; make it again");
  const ArrayRecord one = ArrayOn({13, 14, 15}, {{"x"}}, {12});
  EXPECT_THAT(errors.Of(one, MissingShards(one), {10, 11, 12}),
              ReasonIs("WORKER_LOST",
                       "lost with its shard [0:6], which was only on devices 10, 11, 12 of worker "
                       "w0: it stopped; make it again"));
  const ArrayRecord two = ArrayOn({10, 11, 12, 13}, {{"x", "y"}}, {12});
  EXPECT_THAT(errors.Of(two, MissingShards(two), {14, 15}),
              ReasonIs("WORKER_LOST",
                       "lost with its shards [8:10], [10:12], which were only on devices 14, 15 of "
                       "worker w0: it stopped; make it again"));
  // The device 10 had another shard, which the device 13 still has.
  const ArrayRecord other = ArrayOn({13, 14}, {{"y"}}, {12});
  EXPECT_THAT(errors.Of(other, MissingShards(other), {10, 12}),
              ReasonIs("WORKER_LOST", "shard [8:12], which was only on device 12 of worker w0"));
  const ArrayRecord many = ArrayOn({10}, {{"x", "y"}}, {12});
  EXPECT_THAT(errors.Of(many, MissingShards(many), {11, 12, 13, 14, 15}),
              ReasonIs("WORKER_LOST",
                       "shards [2:4], [4:6], [6:8], [8:10] and 1 more, which were only on devices "
                       "11, 12, 13, 14 and 1 more of"));
}

}  // namespace
}  // namespace tessera::server::scheduler
