package kernel

func groupsThree1AVX512(t *GroupsThree)
func groupsThree2AVX512(t *GroupsThree)
func groupsThree4AVX512(t *GroupsThree)
func groupsThreeWeights1AVX512(t *GroupsThree)
func groupsThreeWeights2AVX512(t *GroupsThree)
func groupsThreeWeights4AVX512(t *GroupsThree)
